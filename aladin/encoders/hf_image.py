"""The `hf` image encoder: any vision tower of the transformers library."""

from __future__ import annotations

import dataclasses
from typing import cast

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.configuration_utils import PretrainedConfig

from aladin.config import ImageEncoderConfig, ImagePreprocessing
from aladin.encoders.base import Features
from aladin.encoders.frozen import Freezable
from aladin.encoders.transformers_model import build_tower, load_tower
from aladin.errors import ConfigError
from aladin.preprocessing import input_window, preprocess_photo, read_preprocessing


class HFImageEncoder(Freezable):
    """Patches of a vision transformer, or cells of a convolutional network's last map.

    A transformer's CLS comes first and is no content; further register tokens are dropped. The
    cells may be averaged to coarser grids, of several sizes at once.
    """

    def __init__(self, config: ImageEncoderConfig, model: nn.Module | None = None) -> None:
        """Build from a complete configuration, with random weights unless `model` is given.

        Args:
            config: `architecture` is set; `preprocessing` defaults to 224 x 224.
            model: the tower that `architecture` describes.

        Raises:
            ConfigError: `architecture` is missing or impossible.
        """
        super().__init__(config.frozen)
        if config.architecture is None:
            raise ConfigError("image_encoder: give a source or an architecture")
        self.preprocessing = config.preprocessing or ImagePreprocessing()
        self.config = dataclasses.replace(config, preprocessing=self.preprocessing)
        self.model = model if model is not None else build_tower(config.architecture)
        self.freeze()
        self.dim, self.grid, self.has_cls = self._probe()
        self._levels = [(side, side) for side in config.pyramid or ()] or [self.grid]
        if any(side < 1 or side > min(self.grid) for side in config.pyramid or ()):
            raise ConfigError(f"image_encoder: pyramid {config.pyramid}, the grid is {self.grid}")
        self.num_tokens = sum(rows * columns for rows, columns in self._levels) + int(self.has_cls)

    @classmethod
    def from_source(cls, config: ImageEncoderConfig) -> HFImageEncoder:
        """Load the pretrained weights that ``config.source`` names."""
        if config.source is None:
            return cls(config)
        model, architecture = load_tower(config.source, "vision")
        preprocessing = config.preprocessing or read_preprocessing(config.source)
        config = dataclasses.replace(config, architecture=architecture, preprocessing=preprocessing)
        return cls(config, model)

    def preprocess(self, photo: Image.Image) -> Float[Tensor, "3 height width"]:
        """Turn an RGB photo into the network's input."""
        return preprocess_photo(photo, self.preprocessing)

    def forward(self, pixels: Float[Tensor, "batch 3 height width"]) -> Features:
        """Encode preprocessed photos."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            outputs = self._outputs(pixels)
        cells = torch.cat([self._on_grid(output) for output in outputs], dim=1)
        regions = [F.adaptive_avg_pool2d(cells, level).flatten(2) for level in self._levels]
        states = torch.cat(regions, dim=2).transpose(1, 2)  # (batch, regions, dim)
        if self.has_cls:
            cls = torch.cat([output[:, :1] for output in outputs], dim=2)
            states = torch.cat([cls, states], dim=1)
        mask = states.new_ones(states.shape[:2], dtype=torch.bool)
        content = mask.clone()
        content[:, : int(self.has_cls)] = False
        return Features(states, mask, content)

    def region_boxes(self, width_px: int, height_px: int) -> Float[Tensor, "regions 4"]:
        """Return each region's (x0, y0, x1, y1) in fractions of a photo of this size."""
        x0, y0, x1, y1 = input_window(width_px, height_px, self.preprocessing)
        boxes = torch.tensor(
            [
                (left, top, right, bottom)
                for rows, columns in self._levels
                for top, bottom in _pooled_spans(self.grid[0], rows)
                for left, right in _pooled_spans(self.grid[1], columns)
            ]
        )
        return boxes * torch.tensor([x1 - x0, y1 - y0] * 2) + torch.tensor([x0, y0] * 2)

    def _outputs(self, pixels: Tensor) -> list[Tensor]:
        """Run the network; return the chosen hidden states and the last one.

        Each is (batch, tokens, dim), or a convolutional map (batch, dim, rows, columns).
        """
        layers = self.config.layers
        output = self.model(pixel_values=pixels, output_hidden_states=bool(layers))
        if not layers:
            return [output.last_hidden_state]
        chosen = [output.hidden_states[layer] for layer in layers]
        return [_normalised(each) for each in (*chosen, output.last_hidden_state)]

    def _on_grid(self, output: Tensor) -> Tensor:
        """Lay an output on the last layer's grid: (batch, dim, rows, columns)."""
        if output.ndim == 3:
            patches = output[:, output.shape[1] - self.grid[0] * self.grid[1] :]
            return patches.transpose(1, 2).unflatten(2, self.grid)
        # A finer map's cells that share one coarse cell become channels of it: nothing is lost.
        return F.pixel_unshuffle(output, output.shape[2] // self.grid[0])

    @torch.no_grad()
    def _probe(self) -> tuple[int, tuple[int, int], bool]:
        """Learn the output's layout from one blank picture: (dim, grid, has a CLS)."""
        height, width = self.preprocessing.height_px, self.preprocessing.width_px
        was_training = self.model.training
        self.model.eval()  # a blank picture must not enter batch norm statistics
        try:
            outputs = self._outputs(torch.zeros(1, 3, height, width))
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
            return sum(dims), (rows, columns), False
        patch = cast(PretrainedConfig, self.model.config).patch_size
        patch_height, patch_width = patch if isinstance(patch, (list, tuple)) else (patch, patch)
        grid = (height // int(patch_height), width // int(patch_width))
        dim = sum(output.shape[2] for output in outputs)
        return dim, grid, last.shape[1] > grid[0] * grid[1]


def _normalised(output: Tensor) -> Tensor:
    """Give each token or cell mean 0 and variance 1: layers differ in scale."""
    if output.ndim == 3:
        return F.layer_norm(output, output.shape[2:])
    channels_last = output.permute(0, 2, 3, 1)
    return F.layer_norm(channels_last, channels_last.shape[3:]).permute(0, 3, 1, 2)


def _pooled_spans(cells: int, pools: int) -> list[tuple[float, float]]:
    """Return what part of the axis each window of an adaptive pooling covers, in fractions."""
    return [
        (pool * cells // pools / cells, -(-(pool + 1) * cells // pools) / cells)
        for pool in range(pools)
    ]
