"""What image encoders share that run a vision tower of the transformers library on photos.

Grids of cells: averaged to coarser ones, and where on the photo each cell of these looks.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import ImageEncoderConfig
from aladin_network.encoders.base import ImageEncoder, TextEncoder
from aladin_network.encoders.dual_encoder import load_dual_tower
from aladin_network.encoders.preprocessing import read_preprocessing
from aladin_network.encoders.transformers_model import load_tower


class VisionTowerEncoder(ImageEncoder):
    """Base of the image encoders that read photos; its source may be one tower, or a pair."""

    reads: ClassVar[Literal["photo", "regions"]] = "photo"

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
            text_encoder: shares nothing with this one.
            model: the tower that `architecture` describes.

        Raises:
            ConfigError: `architecture` is missing or impossible, or does not go with the rest.
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
    """Average cells to each of several grids; a level of the cells' own size keeps them."""
    regions = [F.adaptive_avg_pool2d(cells, level).flatten(2) for level in levels]
    return torch.cat(regions, dim=2).transpose(1, 2)


def pooled_boxes(grid: Grid, levels: Sequence[Grid]) -> Float[Tensor, "regions 4"]:
    """Return the (x0, y0, x1, y1) of `pooled_cells`' regions in fractions of the grid."""
    return torch.tensor(
        [
            (left, top, right, bottom)
            for rows, columns in levels
            for top, bottom in _windows(grid[0], rows)
            for left, right in _windows(grid[1], columns)
        ]
    )


def _windows(cells: int, pools: int) -> list[tuple[float, float]]:
    """Return what part of the axis each window of an adaptive pooling covers, in fractions."""
    return [
        (pool * cells // pools / cells, -(-(pool + 1) * cells // pools) / cells)
        for pool in range(pools)
    ]
