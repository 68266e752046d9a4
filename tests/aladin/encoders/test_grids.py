"""Grids averaged to coarser ones."""

from __future__ import annotations

import pytest
import torch

from aladin_network.encoders.pixels import pooled_boxes
from aladin_network.encoders.vision_tower import pooled_cells


@pytest.mark.parametrize("level", [(4, 6), (2, 3), (3, 4), (1, 1), (5, 6)])
def test_a_region_averages_the_cells_of_its_box(level: tuple[int, int]) -> None:
    cells = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    regions, boxes = pooled_cells(cells, [level]), pooled_boxes((4, 6), [level])
    assert regions.shape == (2, level[0] * level[1], 3)
    for region, (x0, y0, x1, y1) in enumerate(boxes.tolist()):
        rows, columns = slice(round(4 * y0), round(4 * y1)), slice(round(6 * x0), round(6 * x1))
        torch.testing.assert_close(regions[:, region], cells[:, :, rows, columns].mean(dim=(2, 3)))


def test_levels_follow_each_other() -> None:
    assert pooled_boxes((4, 4), [(2, 2), (1, 1)]).tolist() == [
        [0, 0, 0.5, 0.5],
        [0.5, 0, 1, 0.5],
        [0, 0.5, 0.5, 1],
        [0.5, 0.5, 1, 1],
        [0, 0, 1, 1],
    ]
