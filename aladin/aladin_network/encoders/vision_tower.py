"""Image encoders that run a vision tower of the transformers library on photos.

Preprocessing of photos, averaging of grid cells, and the base class of these encoders.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing
from aladin_network.encoders.base import ImageEncoder, PhotoPatches, Reads, TextEncoder
from aladin_network.encoders.dual_encoder import load_dual_tower
from aladin_network.encoders.transformers_model import load_failure, load_tower, quiet
from aladin_network.errors import CheckpointError, ConfigError

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

# A photo longer than so many inputs in a row is not resized whole before the crop: a strip of a
# million by one pixels would become one of a billion.
_LONGEST_STRIP = 16

# Between these factors a photo is scaled to its patches, and so near to the largest one that fits:
# SigLIP 2's own numbers, as they decide of how many patches a photo has.
_SMALLEST_SCALE, _LARGEST_SCALE, _SCALE_STEP = 1e-6, 100.0, 1e-5


def preprocess_photo(
    photo: Image.Image, config: ImagePreprocessing
) -> Float[Tensor, "3 height width"]:
    """Resize, crop and normalise an RGB photo, to the numbers of its network's own processor."""
    values = _normalised(_resize_and_crop(photo, config), config)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def preprocess_patches(
    photo: Image.Image, config: ImagePreprocessing, patch_px: int
) -> PhotoPatches:
    """Scale an RGB photo to as many patches as `config` allows, and cut it (NaFlex).

    Args:
        photo: Photo of any shape.
        config: Preprocessing with `max_patches`.
        patch_px: Side of a patch in pixels.
    """
    rows, columns = patch_grid(photo.width, photo.height, config, patch_px)
    size = (columns * patch_px, rows * patch_px)
    if photo.size != size:
        photo = photo.resize(size, _FILTERS[config.resample])
    values = _normalised(photo, config).reshape(rows, patch_px, columns, patch_px, 3)
    patches = values.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)
    return PhotoPatches(torch.from_numpy(np.ascontiguousarray(patches)), (rows, columns))


def patch_grid(
    width_px: int, height_px: int, config: ImagePreprocessing, patch_px: int
) -> tuple[int, int]:
    """Return the rows and columns of a photo's patches: the most that `config` allows.

    Both sides are scaled alike and then filled up to whole patches, at least one.

    Args:
        width_px: Width of the photo.
        height_px: Height of the photo.
        config: Preprocessing with `max_patches`.
        patch_px: Side of a patch in pixels.

    Raises:
        ConfigError: If `config` has no `max_patches`.
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


def read_preprocessing(source: str) -> ImagePreprocessing:
    """Read the preprocessing that comes with a pretrained encoder.

    Args:
        source: Local folder or hub name.

    Raises:
        CheckpointError: If the source has no preprocessing file, or the file cannot be read.
        ConfigError: If the file asks for something that `ImagePreprocessing` cannot express.
    """
    from transformers import AutoImageProcessor  # building an encoder does not need it

    try:
        with quiet():
            processor = AutoImageProcessor.from_pretrained(
                source, backend="pil", trust_remote_code=False
            )
    except (OSError, ValueError) as error:
        reason = load_failure(error)
        raise CheckpointError(f"{source}: cannot read its preprocessing ({reason})") from error
    if not processor.do_normalize:
        raise ConfigError(f"{source}: unsupported preprocessing (it does not normalise)")
    look: dict[str, Any] = {
        "mean": tuple(processor.image_mean),
        "std": tuple(processor.image_std),
        "resample": Image.Resampling(processor.resample).name.lower(),
    }
    max_patches = getattr(processor, "max_num_patches", None)
    if max_patches is not None:
        return ImagePreprocessing(max_patches=int(max_patches), **look)
    size = dict(processor.size)
    crop = dict(processor.crop_size) if getattr(processor, "do_center_crop", False) else None
    shortest_edge = size.get("shortest_edge")
    final = crop or size
    if "height" not in final and shortest_edge is not None:
        final = {"height": shortest_edge, "width": shortest_edge}
    squashed_then_cropped = crop is not None and shortest_edge is None
    if "height" not in final or squashed_then_cropped:
        raise ConfigError(f"{source}: unsupported preprocessing (size {size}, crop {crop})")
    return ImagePreprocessing(
        height_px=final["height"],
        width_px=final["width"],
        shortest_edge_px=shortest_edge,
        **look,
    )


def _normalised(photo: Image.Image, config: ImagePreprocessing) -> npt.NDArray[np.float32]:
    """Return a photo's (height, width, 3) numbers as the network wants them."""
    values = np.array(photo, dtype=np.float32)
    values /= 255
    values -= np.array(config.mean, dtype=np.float32)
    values /= np.array(config.std, dtype=np.float32)
    return values


def _resize_and_crop(photo: Image.Image, config: ImagePreprocessing) -> Image.Image:
    """Bring a photo to the network's size."""
    size = (config.width_px, config.height_px)
    how = _FILTERS[config.resample]
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
    left, top = (width - size[0]) // 2, (height - size[1]) // 2
    return photo.crop((left, top, left + size[0], top + size[1]))


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
        _kept_px(side, of, wanted)
        for side, of, wanted in zip(
            (width_px, height_px), resized, (config.width_px, config.height_px), strict=True
        )
    )
    return x0, y0, x1, y1


def _kept_px(side: int, resized: int, wanted: int) -> tuple[float, float]:
    """Return the part of a side that is left if `wanted` of `resized` pixels are kept."""
    start = max(0, (resized - wanted) // 2)
    stop = min(resized, start + wanted)
    return side * start / resized, side * stop / resized


class VisionTowerEncoder(ImageEncoder):
    """Base of the image encoders that read photos; its source is one tower or a pair."""

    reads: ClassVar[Reads] = "photo"

    @abstractmethod
    def __init__(
        self,
        config: ImageEncoderConfig,
        text_encoder: TextEncoder | None = None,
        model: nn.Module | None = None,
    ) -> None:
        """Build from a complete configuration, with random weights unless `model` is given.

        Args:
            config: `architecture` is set.
            text_encoder: Text encoder of the network; this encoder shares nothing with it.
            model: Tower described by `architecture`.

        Raises:
            ConfigError: If `architecture` is missing or impossible, or does not go with the rest.
        """
        super().__init__(config, text_encoder)

    @classmethod
    def from_source(
        cls, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None
    ) -> VisionTowerEncoder:
        """Load the pretrained weights that ``config.source`` names."""
        if config.source is None:
            return cls(config, text_encoder)
        projection = None
        if config.pooled:
            model, architecture, projection = load_dual_tower(config.source, "vision")
        else:
            model, architecture = load_tower(config.source, "vision")
        preprocessing = config.preprocessing or read_preprocessing(config.source)
        config = dataclasses.replace(config, architecture=architecture, preprocessing=preprocessing)
        encoder = cls(config, text_encoder, model)
        encoder.projection = projection
        return encoder


# Rows and columns of cells.
Grid = tuple[int, int]


def pooled_cells(
    cells: Float[Tensor, "batch dim rows columns"], levels: Sequence[Grid]
) -> Float[Tensor, "batch regions dim"]:
    """Average cells to each of several grids; a level of the same size keeps them."""
    regions = [F.adaptive_avg_pool2d(cells, level).flatten(2) for level in levels]
    return torch.cat(regions, dim=2).transpose(1, 2)


def pooled_boxes(grid: Grid, levels: Sequence[Grid]) -> Float[Tensor, "regions 4"]:
    """Return the (x0, y0, x1, y1) of the regions of `pooled_cells`, in fractions of the grid."""
    return torch.tensor(
        [
            (left, top, right, bottom)
            for rows, columns in levels
            for top, bottom in _windows(grid[0], rows)
            for left, right in _windows(grid[1], columns)
        ]
    )


def _windows(cells: int, pools: int) -> list[tuple[float, float]]:
    """Return the interval of each adaptive pooling window on the axis, in fractions."""
    return [
        (pool * cells // pools / cells, -(-(pool + 1) * cells // pools) / cells)
        for pool in range(pools)
    ]
