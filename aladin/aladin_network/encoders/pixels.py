"""Preprocessing of photos for vision towers, and the boxes of a grid's cells.

Neither torch nor the transformers library is needed here: an exported network is fed without them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, UInt8
from PIL import Image

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing
from aladin_network.encoders.readers import Reads
from aladin_network.errors import CheckpointError, ConfigError, InputError
from aladin_network.photos.regions import RegionSet

# Rows and columns of cells.
Grid = tuple[int, int]

_NO_REGIONS = "this network reads photos, not regions"

# A photo longer than so many inputs in a row is not resized whole before the crop: a strip of a
# million by one pixels would become one of a billion.
_LONGEST_STRIP = 16

# Between these factors a photo is scaled to its patches, and so near to the largest one that fits:
# SigLIP 2's own numbers, as they decide of how many patches a photo has.
_SMALLEST_SCALE, _LARGEST_SCALE, _SCALE_STEP = 1e-6, 100.0, 1e-5


@dataclass(frozen=True, kw_only=True)
class CellLayout:
    """What an image encoder makes of a photo of its own size, beside its configuration.

    Attributes:
        num_tokens: Number of tokens of every photo, or None if it differs from photo to photo.
        grid: Grid of the last layer's cells.
        covered: Parts of the input's width and height that the cells cover.
    """

    dim: int
    num_tokens: int | None
    grid: Grid
    covered: tuple[float, float]


class PixelReader:
    """The preprocessing and the boxes of an image encoder, without its weights.

    A network's graph takes what `collate` returns; processes that decode photos need no more.
    """

    reads: ClassVar[Reads] = "photo"

    def __init__(
        self, config: ImageEncoderConfig, cells: CellLayout | None, *, takes_bytes: bool = False
    ) -> None:
        """Prepare photos for a network with these cells, or without any.

        One that `takes_bytes` normalises photos itself.
        """
        if config.preprocessing is None:
            raise CheckpointError("image_encoder: expected preprocessing, got none")
        self.config = config
        self.num_tokens: int | None = 0 if cells is None else cells.num_tokens
        self._preprocessing, self._cells = config.preprocessing, cells
        self._takes_bytes = takes_bytes

    def preprocess(self, photo: Image.Image | RegionSet) -> UInt8[np.ndarray, "3 height width"]:
        """Convert an RGB photo to the pixels that the network sees."""
        return preprocess_photo(photo, self._preprocessing)

    def collate(
        self, inputs: Sequence[npt.NDArray[np.uint8]]
    ) -> Float[np.ndarray, "batch 3 height width"] | UInt8[np.ndarray, "batch height width 3"]:
        """Stack and normalise preprocessed photos; without the latter, pixel by pixel."""
        if self._takes_bytes:
            return np.ascontiguousarray(np.stack(inputs).transpose(0, 2, 3, 1))
        return normalised(np.stack(inputs), self._preprocessing)

    def region_boxes(self, width_px: int, height_px: int) -> Float[np.ndarray, "regions 4"]:
        """Return each region's (x0, y0, x1, y1) in fractions of a photo of this size."""
        if self._cells is None:
            return np.zeros((0, 4), dtype=np.float32)
        levels = [(side, side) for side in self.config.pyramid or ()] or [self._cells.grid]
        return grid_boxes((width_px, height_px), self._preprocessing, self._cells, levels)


class PatchArray(NamedTuple):
    """A photo cut into square patches, row by row.

    Attributes:
        values: Normalised red, green and blue of each patch's pixels.
    """

    values: Float[np.ndarray, "patches numbers"]
    grid: tuple[int, int]


def preprocess_photo(
    photo: Image.Image | RegionSet, config: ImagePreprocessing
) -> UInt8[np.ndarray, "3 height width"]:
    """Resize and crop an RGB photo; its pixels are a quarter of what they are once normalised."""
    if isinstance(photo, RegionSet):
        raise InputError(_NO_REGIONS)
    # One channel after the other: three values a pixel are too short a loop for the processor's
    # vectors, and take several times as long to normalise.
    return np.ascontiguousarray(np.asarray(_resize_and_crop(photo, config)).transpose(2, 0, 1))


def preprocess_patches(
    photo: Image.Image | RegionSet, config: ImagePreprocessing, patch_px: int
) -> PatchArray:
    """Scale an RGB photo to as many patches as `config` allows, and cut it (NaFlex)."""
    if isinstance(photo, RegionSet):
        raise InputError(_NO_REGIONS)
    rows, columns = patch_grid(photo.width, photo.height, config, patch_px)
    size = (columns * patch_px, rows * patch_px)
    if photo.size != size:
        photo = photo.resize(size, Image.Resampling[config.resample.upper()])
    values = normalised(np.asarray(photo).transpose(2, 0, 1), config)
    values = values.reshape(3, rows, patch_px, columns, patch_px)
    patches = values.transpose(1, 3, 2, 4, 0).reshape(rows * columns, -1)
    return PatchArray(np.ascontiguousarray(patches), (rows, columns))


def patch_grid(
    width_px: int, height_px: int, config: ImagePreprocessing, patch_px: int
) -> tuple[int, int]:
    """Return the rows and columns of a photo's patches: the most that `config` allows.

    Both sides are scaled alike and then filled up to whole patches, at least one.
    """
    if config.max_patches is None:
        raise ConfigError("image_encoder.preprocessing: a photo's patches need max_patches")

    def patches(side_px: int, scale: float) -> int:
        return max(1, math.ceil(side_px * scale / patch_px))

    low, high = _SMALLEST_SCALE, _LARGEST_SCALE
    while high - low >= _SCALE_STEP:
        middle = (low + high) / 2
        fits = patches(height_px, middle) * patches(width_px, middle) <= config.max_patches
        low, high = (middle, high) if fits else (low, middle)
    return patches(height_px, low), patches(width_px, low)


def input_window(
    width_px: int, height_px: int, config: ImagePreprocessing
) -> tuple[float, float, float, float]:
    """Return the part of a photo that the network sees, in fractions of its size."""
    x0, y0, x1, y1 = _window_px(width_px, height_px, config)
    return x0 / width_px, y0 / height_px, x1 / width_px, y1 / height_px


def normalised(
    pixels: UInt8[np.ndarray, "*photos 3 height width"], config: ImagePreprocessing
) -> Float[np.ndarray, "*photos 3 height width"]:
    """Return the numbers that the network's own processor makes of pixels."""
    values = pixels.astype(np.float32, order="C")
    values /= 255
    values -= np.array(config.mean, dtype=np.float32)[:, None, None]
    values /= np.array(config.std, dtype=np.float32)[:, None, None]
    return values


def _resize_and_crop(photo: Image.Image, config: ImagePreprocessing) -> Image.Image:
    """Bring a photo to the network's size."""
    size = (config.width_px, config.height_px)
    how = Image.Resampling[config.resample.upper()]
    if config.shortest_edge_px is None:
        return photo if photo.size == size else photo.resize(size, how)
    width, height = _resized_px(photo.width, photo.height, config.shortest_edge_px)
    fits = width >= size[0] and height >= size[1]
    if not fits or max(width, height) > _LONGEST_STRIP * max(size):
        window = _window_px(photo.width, photo.height, config)
        return photo.resize(size, how, box=window)
    # One resize of the window would do, but rounds some pixels to the neighbouring step.
    if photo.size != (width, height):
        photo = photo.resize((width, height), how)
    left, top = _crop_start(width - size[0], config), _crop_start(height - size[1], config)
    return photo.crop((left, top, left + size[0], top + size[1]))


def _crop_start(surplus_px: int, config: ImagePreprocessing) -> int:
    """Return how much of a side's surplus is cut off before the kept part."""
    return round(surplus_px / 2) if config.crop_start == "even" else surplus_px // 2


def _resized_px(width_px: int, height_px: int, shortest_edge_px: int) -> tuple[int, int]:
    """Return a photo's size before the crop, rounded as by the pretrained encoders' processors."""
    shortest = min(width_px, height_px)
    return int(shortest_edge_px * width_px / shortest), int(shortest_edge_px * height_px / shortest)


def _window_px(
    width_px: int, height_px: int, config: ImagePreprocessing
) -> tuple[float, float, float, float]:
    if config.shortest_edge_px is None:
        return 0.0, 0.0, float(width_px), float(height_px)
    resized = _resized_px(width_px, height_px, config.shortest_edge_px)
    (x0, x1), (y0, y1) = (
        _kept_px(side, of, wanted, config)
        for side, of, wanted in zip(
            (width_px, height_px), resized, (config.width_px, config.height_px), strict=True
        )
    )
    return x0, y0, x1, y1


def _kept_px(
    side: int, resized: int, wanted: int, config: ImagePreprocessing
) -> tuple[float, float]:
    """Return the part of a side that is left if `wanted` of `resized` pixels are kept."""
    start = max(0, _crop_start(resized - wanted, config))
    stop = min(resized, start + wanted)
    return side * start / resized, side * stop / resized


def grid_boxes(
    size_px: tuple[int, int], config: ImagePreprocessing, cells: CellLayout, levels: Sequence[Grid]
) -> Float[np.ndarray, "regions 4"]:
    """Return each region's (x0, y0, x1, y1) in fractions of a photo that was resized and cropped.

    `levels` are the grids to which the cells are averaged.
    """
    x0, y0, x1, y1 = input_window(*size_px, config)
    boxes = pooled_boxes(cells.grid, levels) * np.array([*cells.covered] * 2, dtype=np.float32)
    size = np.array([x1 - x0, y1 - y0] * 2, dtype=np.float32)
    return boxes * size + np.array([x0, y0] * 2, dtype=np.float32)


def pooled_boxes(grid: Grid, levels: Sequence[Grid]) -> Float[np.ndarray, "regions 4"]:
    """Return the (x0, y0, x1, y1) of the regions of `pooled_cells`, in fractions of the grid."""
    return np.array(
        [
            (left, top, right, bottom)
            for rows, columns in levels
            for top, bottom in _windows(grid[0], rows)
            for left, right in _windows(grid[1], columns)
        ],
        dtype=np.float32,
    )


def _windows(cells: int, pools: int) -> list[tuple[float, float]]:
    """Return the interval of each adaptive pooling window on the axis, in fractions."""
    return [
        (pool * cells // pools / cells, -(-(pool + 1) * cells // pools) / cells)
        for pool in range(pools)
    ]
