"""The `hf` image encoder: any vision tower of the transformers library."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Sequence
from math import isqrt
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from transformers.configuration_utils import PretrainedConfig
from typing_extensions import override

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing, dump_changes
from aladin_network.encoders.base import (
    Features,
    LayerStates,
    PhotoBatch,
    concatenate_features,
    with_front,
)
from aladin_network.encoders.divided_tower import DividedTower
from aladin_network.encoders.pixels import CellLayout, Grid, grid_boxes, preprocess_photo
from aladin_network.encoders.pretrained import pool
from aladin_network.encoders.vision_tower import VisionTowerEncoder, pooled_cells
from aladin_network.errors import ConfigError
from aladin_network.photos.regions import RegionSet

# More maps than fit into the processor's caches take twice as long each.
_STATES_AT_A_TIME = 16


class HFImageEncoder(VisionTowerEncoder):
    """Patches of a vision transformer, or cells of a convolutional network's last feature map.

    They are the last layer's states, as the network of the transformers library returns them; of a
    transformer that merges patches on their way, such as Swin, fewer than there were patches. A
    transformer's CLS comes first and is no content; further register tokens are dropped. With
    ``pooled`` the states have passed the tower's last norm, and the vector that its own
    similarity compares comes first. The cells may be averaged to coarser grids, of several sizes
    at once. Photos of another size than the network's own take interpolated positions.
    """

    default_preprocessing = ImagePreprocessing()

    @override
    def measure(self) -> None:
        self._divided: DividedTower | None = None
        self._options = self._position_options()
        self.dim, self.grid, self.has_cls, self._covered = self._probe()
        pyramid = self.config.pyramid or ()
        self.levels = [(side, side) for side in pyramid] or [self.grid]
        if any(side < 1 or side > min(self.grid) for side in pyramid):
            raise ConfigError(f"image_encoder: pyramid {pyramid}, the grid is {self.grid}")
        self.has_front = self.has_cls or self.config.pooled
        regions = sum(rows * columns for rows, columns in self.levels)
        self.num_tokens = regions + int(self.has_front)

    @staticmethod
    @override
    def check(config: ImageEncoderConfig) -> None:
        if config.architecture is None:
            raise ConfigError("image_encoder: give a source or an architecture")
        if config.preprocessing is not None and config.preprocessing.max_patches is not None:
            raise ConfigError(
                'image_encoder: a network for photos of any shape needs name = "naflex"'
            )
        if config.pooled and config.layers:
            raise ConfigError("image_encoder: a pooled vector has no further layers; drop one")

    @property
    @override
    def cells(self) -> CellLayout:
        return CellLayout(
            dim=self.dim, num_tokens=self.num_tokens, grid=self.grid, covered=self._covered
        )

    def preprocess(self, photo: Image.Image | RegionSet) -> UInt8[Tensor, "3 height width"]:
        """Convert an RGB photo to the pixels that the network sees."""
        return torch.from_numpy(preprocess_photo(photo, self.preprocessing))

    def collate(
        self, inputs: Sequence[Tensor | np.ndarray]
    ) -> UInt8[Tensor, "batch 3 height width"]:
        """Stack preprocessed photos."""
        return torch.stack([torch.as_tensor(each) for each in inputs])

    def normalised(self, pixels: PhotoBatch) -> Float[Tensor, "batch 3 height width"]:
        """Return the network's input on the device of the pixels; what is normalised stays."""
        if pixels.dtype != torch.uint8:
            return pixels
        numbers = pixels.to(torch.float32).div_(255)
        mean, std = (
            numbers.new_tensor(each)[:, None, None]
            for each in (self.preprocessing.mean, self.preprocessing.std)
        )
        return numbers.sub_(mean).div_(std)

    def divide(self, last_layers: int | None) -> None:
        """Divide the network; see `Freezable.divide`."""
        self.last_layers = self._divided = None
        if last_layers is None:
            return
        self._divided = DividedTower(self.model, last_layers)
        try:
            self._check_division()
        except ConfigError:
            self._divided = None
            raise
        self.last_layers = last_layers

    @torch.no_grad()
    def _check_division(self) -> None:
        """Compare the divided with the whole network on one photo."""
        was_training = self.model.training
        self.model.eval()
        size_px = self.preprocessing.height_px, self.preprocessing.width_px
        photo = torch.rand(1, 3, *size_px, device=next(self.model.parameters()).device)
        try:
            expected, found = self(photo).states, self(self.layer_states(photo)).states
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            raise ConfigError(f"image_encoder: cannot begin at a layer ({error})") from error
        finally:
            self.model.train(was_training)
        # A GPU that multiplies in TF32 differs by some thousandths, another network by everything.
        if found.shape != expected.shape or (found - expected).norm() > 5e-3 * expected.norm():
            raise ConfigError(
                "image_encoder: its output needs more than the states that enter the last layers "
                f"(chosen layers: {list(self.config.layers)})"
            )

    def layer_states(self, batch: PhotoBatch) -> LayerStates:
        """Compute what enters the last layers; see `DividedEncoder`."""
        with torch.no_grad():
            return self._division().states(self.normalised(batch), **self._options)

    def states_digest(self) -> str:
        """Digest the layers before the division; see `DividedEncoder`."""
        settings = dump_changes(self.preprocessing), self.config.architecture
        content = json.dumps(settings, sort_keys=True) + self._division().digest()
        return hashlib.sha256(content.encode()).hexdigest()

    def forward(self, batch: PhotoBatch | LayerStates) -> Features:
        """Encode preprocessed photos, or go on with what enters the last layers."""
        if isinstance(batch, LayerStates) and len(batch.values) > _STATES_AT_A_TIME:
            parts = batch.values.split(_STATES_AT_A_TIME)
            return concatenate_features([self(LayerStates(part)) for part in parts])
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            outputs, front = self._outputs(batch)
        cells = torch.cat([self._on_grid(output) for output in outputs], dim=1)
        states = pooled_cells(cells, self.levels)  # (batch, regions, dim)
        mask = states.new_ones(states.shape[:2], dtype=torch.bool)
        features = Features(states, mask, mask)
        if front is None and self.has_cls:
            front = torch.cat([output[:, 0] for output in outputs], dim=1)
        return features if front is None else with_front(features, front)

    def region_boxes(self, width_px: int, height_px: int) -> Float[np.ndarray, "regions 4"]:
        """Return each region's (x0, y0, x1, y1) in fractions of a photo of this size."""
        size_px = (width_px, height_px)
        return grid_boxes(size_px, self.preprocessing, self.cells, self.levels)

    def _division(self) -> DividedTower:
        if self._divided is None:
            raise ConfigError("image_encoder: the network is not divided")
        return self._divided

    def _outputs(self, batch: Tensor | LayerStates) -> tuple[list[Tensor], Tensor | None]:
        """Run the network; return the chosen and the last hidden states, and the pooled vector.

        The states are (batch, tokens, dim), or a convolutional map (batch, dim, rows, columns);
        what is pooled is (batch, dim), None without ``pooled``.
        """
        layers = self.config.layers
        if isinstance(batch, LayerStates):
            model, pixels = self._division().enter(batch), batch.values
        else:
            model, pixels = self.model, self.normalised(batch)
        output = model(pixel_values=pixels, output_hidden_states=bool(layers), **self._options)
        if self.config.pooled:
            states, pooled = pool(self.model, output)
            return [states], pooled
        if not layers:
            return [output.last_hidden_state], None
        chosen = [output.hidden_states[layer] for layer in layers]
        return [_normalised(each) for each in (*chosen, output.last_hidden_state)], None

    def _on_grid(self, output: Tensor) -> Tensor:
        """Arrange an output on the last layer's grid: (batch, dim, rows, columns)."""
        if output.ndim == 3:
            finer = 1 if self.has_cls else _finer(output, self.grid)
            rows, columns = finer * self.grid[0], finer * self.grid[1]
            patches = output[:, output.shape[1] - rows * columns :]
            output = patches.transpose(1, 2).unflatten(2, (rows, columns))
            if finer == 1:
                return output
        # Cells of a finer map that share one coarse cell become its channels, without loss.
        return F.pixel_unshuffle(output, output.shape[2] // self.grid[0])

    @torch.no_grad()
    def _probe(self) -> tuple[int, Grid, bool, tuple[float, float]]:
        """Determine width, grid, CLS and covered part of the output from one blank photo."""
        height, width = self.preprocessing.height_px, self.preprocessing.width_px
        was_training = self.model.training
        self.model.eval()  # a blank picture must not enter batch norm statistics
        try:
            outputs, pooled = self._outputs(torch.zeros(1, 3, height, width))
        except (ValueError, RuntimeError) as error:
            size = f"{height} x {width} px"
            raise ConfigError(f"image_encoder: cannot take photos of {size} ({error})") from error
        except IndexError as error:
            raise ConfigError(f"image_encoder: no such layers {self.config.layers}") from error
        self.model.train(was_training)
        last = outputs[-1]
        if last.ndim == 4:
            rows, columns = last.shape[2], last.shape[3]
            finer = [output.shape[2] // rows for output in outputs]
            for output, factor in zip(outputs, finer, strict=True):
                if output.shape[2:] != (factor * rows, factor * columns):
                    raise ConfigError(
                        f"image_encoder: a layer's map of {tuple(output.shape[2:])} does not fit "
                        f"the last one's of {(rows, columns)}"
                    )
            dims = [output.shape[1] * f**2 for output, f in zip(outputs, finer, strict=True)]
            return sum(dims), (rows, columns), False, (1.0, 1.0)
        patch_height, patch_width = self._patch_px()
        patches = (height // patch_height, width // patch_width)
        # Patches that were merged on their way, as in Swin: `merged` by `merged` to a token.
        merged = max(1, isqrt(patches[0] * patches[1] // last.shape[1]))
        grid = (patches[0] // merged, patches[1] // merged)
        has_cls = last.shape[1] > grid[0] * grid[1]
        if last.shape[1] < grid[0] * grid[1] or (merged > 1 and has_cls):
            raise ConfigError(
                f"image_encoder: {last.shape[1]} tokens of {patches[0]} x {patches[1]} patches are "
                "on no grid; choose another size of photos"
            )
        finer = [1 if has_cls else _finer(output, grid) for output in outputs]
        dim = sum(output.shape[2] * f**2 for output, f in zip(outputs, finer, strict=True))
        if self.config.pooled and (pooled is None or pooled.shape != (1, dim)):
            found = None if pooled is None else tuple(pooled.shape)
            raise ConfigError(f"image_encoder: no pooled vector of {dim} numbers, got {found}")
        # An incomplete patch at the right or bottom edge is dropped.
        covered = patches[1] * patch_width / width, patches[0] * patch_height / height
        return dim, grid, has_cls, covered

    def _position_options(self) -> dict[str, bool]:
        """Request interpolated positions for photos that do not have the network's own size.

        At its own size nothing is interpolated, so that the network computes as published. Those
        that interpolate unasked, and those without positions, do not take the option.
        """
        own = getattr(self.model.config, "image_size", None)
        own = tuple(own) if isinstance(own, (list, tuple)) else (own, own)
        asked = "interpolate_pos_encoding" in inspect.signature(self.model.forward).parameters
        if not asked or own == (self.preprocessing.height_px, self.preprocessing.width_px):
            return {}
        return {"interpolate_pos_encoding": True}

    def _patch_px(self) -> tuple[int, int]:
        patch = cast(PretrainedConfig, self.model.config).patch_size
        height, width = patch if isinstance(patch, (list, tuple)) else (patch, patch)
        return int(height), int(width)


def _finer(output: Tensor, grid: Grid) -> int:
    """Return how many tokens of a transformer's layer lie on one side of a cell of a grid."""
    return isqrt(output.shape[1] // (grid[0] * grid[1]))


def _normalised(output: Tensor) -> Tensor:
    """Normalise each token or cell to mean 0 and variance 1: layers differ in scale."""
    if output.ndim == 3:
        return F.layer_norm(output, output.shape[2:])
    channels_last = output.permute(0, 2, 3, 1)
    return F.layer_norm(channels_last, channels_last.shape[3:]).permute(0, 3, 1, 2)
