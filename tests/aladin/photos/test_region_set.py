"""Regions check themselves: what a detector or an upload got wrong is said once, clearly."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from aladin_network.errors import RegionError
from aladin_network.photos.regions import RegionSet, with_geometry

BOXES = np.array([[0, 0, 0.5, 1], [0.25, 0.5, 0.75, 0.5]], dtype=np.float32)


def regions(**changes: Any) -> RegionSet:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    parts: dict[str, Any] = {"vectors": values, "boxes": BOXES, "labels": ("dog", "red ball")}
    return RegionSet(**(parts | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vectors": np.zeros(3, np.float32)}, r"vectors: expected shape .*, got \(3,\)"),
        ({"vectors": np.zeros((2, 0), np.float32)}, r"expected shape .*, got \(2, 0\)"),
        ({"vectors": np.full((2, 3), np.nan, np.float32)}, "vectors: expected finite numbers"),
        ({"boxes": BOXES[:1]}, r"boxes: expected shape \(2, 4\), got \(1, 4\)"),
        ({"boxes": BOXES + np.float32(np.inf)}, "boxes: expected finite numbers"),
        ({"boxes": 2 * BOXES}, r"inside the photo, region 0 has \[0\.0, 0\.0, 1\.0, 2\.0\]"),
        ({"boxes": BOXES[:, [2, 1, 0, 3]]}, "x0 <= x1, y0 <= y1, region 0 has"),
        ({"vectors": np.full((2, 3), 1e30, np.float32)}, r"vectors: expected numbers up to 1e\+09"),
        ({"labels": ("dog",)}, "labels: expected 2, got 1"),
        ({"size_px": (640, 0)}, r"size: expected 1 to .* px a side, got \(640, 0\)"),
        ({"size_px": (2**31, 1)}, "size: expected 1 to 2147483647 px a side"),
        ({"labels": ("dog", "\udc00")}, r"expected texts of Unicode, got '\\udc00'"),
        ({"detector": "\udc00"}, "expected texts of Unicode"),
    ],
)
def test_invalid_regions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RegionError, match=message):
        regions(**changes)


def test_a_box_that_stands_out_by_rounding_is_clipped() -> None:
    found = regions(boxes=BOXES + np.array([[-0.0009, 0, 0, 0.0009]] * 2, dtype=np.float32))
    assert found.boxes is not None
    np.testing.assert_allclose(found.boxes, [[0, 0, 0.5, 1], [0.2491, 0.5, 0.75, 0.5009]])


def test_geometry_stands_behind_the_appearance() -> None:
    vectors = with_geometry(np.array([[7.0], [8.0]], dtype=np.float32), BOXES)
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [
        [7, 0, 0, 0.5, 1, 0.5, 1],
        [8, 0.25, 0.5, 0.75, 0.5, 0.5, 0],
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": np.ones((2, 3), np.float32)},
        {"boxes": None},
        {"boxes": BOXES / 2},
        {"labels": ("dog", "ball")},
        {"size_px": (8, 9)},
        {"detector": None},
    ],
    ids=str,
)
def test_the_digest_is_of_everything(change: dict[str, Any]) -> None:
    whole = regions(size_px=(9, 8), detector="d")
    assert whole.digest() == regions(size_px=(9, 8), detector="d").digest()
    assert whole.digest() != dataclasses.replace(whole, **change).digest()
