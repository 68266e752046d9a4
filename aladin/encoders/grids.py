"""Grids of cells: averaged to coarser ones, and where on the photo each cell of these looks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

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
