"""Queries by a box: the part of a photo that is searched for, and the regions inside of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.search.results import Box
from aladin_network.errors import InputError

# Share of a region's area that has to be inside of the box. With a half, cells of a grid whose
# corner alone is inside are missing, and fewer boxes are found again (benchmarks/RESULTS.md).
_INSIDE = 1 / 3


def check_box(box: Sequence[float], name: str = "box") -> Box:
    """Check a box of a query.

    Args:
        box: x0, y0, x1, y1 in fractions of the photo's width and height.
        name: Name of the box in errors.

    Raises:
        InputError: If it is no box, is not inside the photo, or has no area.
    """
    if len(box) != 4 or not all(math.isfinite(edge) for edge in box):
        raise InputError(f"{name}: expected four numbers x0, y0, x1, y1, got {list(box)}")
    x0, y0, x1, y1 = box
    if not all(0 <= edge <= 1 for edge in box):
        raise InputError(
            f"{name}: expected fractions of the photo's width and height, 0 to 1, got {list(box)}"
        )
    if not (x0 < x1 and y0 < y1):
        raise InputError(f"{name}: expected x0 < x1 and y0 < y1, got {list(box)}")
    return float(x0), float(y0), float(x1), float(y1)


def overlap_areas(
    boxes: Float[np.ndarray, "boxes 4"], others: Float[np.ndarray, "others 4"]
) -> Float[np.ndarray, "boxes others"]:
    """Return the area that each box has in common with each other box."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=2)


def box_areas(boxes: Float[np.ndarray, "boxes 4"]) -> Float[np.ndarray, " boxes"]:
    """Return the areas of boxes."""
    return (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)


def regions_inside(boxes: Float[np.ndarray, "regions 4"], box: Box) -> NDArray[np.int64]:
    """Return the regions that are searched for by a box, in ascending order.

    Those are the regions with at least a third of their area inside. A box that is too small for
    any takes the one region that fits it best, by the intersection divided by the union.

    Args:
        boxes: Boxes of a photo's regions, at least one.
        box: Box of the query.
    """
    asked = np.array([box], dtype=np.float64)
    shared = overlap_areas(boxes, asked)[:, 0]
    areas = box_areas(boxes)
    inside = np.flatnonzero((areas > 0) & (shared >= _INSIDE * areas))
    if len(inside):
        return inside
    union = areas + box_areas(asked)[0] - shared
    return np.array([np.argmax(shared / union)])
