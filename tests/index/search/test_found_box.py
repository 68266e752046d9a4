"""Where a box is found, against all hypotheses by loops."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.search.found_box import BoxFinder
from aladin_index.search.results import Box
from tests.index.search.conftest import unit_rows


def grid(columns: int, rows: int) -> NDArray[np.float64]:
    """Boxes of a grid's cells, row by row."""
    places = itertools.product(range(rows), range(columns))
    cells = [(x / columns, y / rows, (x + 1) / columns, (y + 1) / rows) for y, x in places]
    return np.array(cells)


def moves(low: float, high: float, step: float) -> list[tuple[float, float]]:
    """Return the factors and summands along an axis that keep [low, high] inside of [0, 1]."""
    found = [(1.0, 0.0)]
    for exponent, number in itertools.product((-1, -0.5, 0, 0.5, 1), range(-64, 65)):
        factor, summand = 2**exponent, number * step
        if low * factor + summand >= -1e-9 and high * factor + summand <= 1 + 1e-9:
            found.append((factor, summand))
    return found


def area(box: list[float]) -> float:
    """Return the area of a box."""
    return (box[2] - box[0]) * (box[3] - box[1])


def overlap(one: list[float], other: list[float]) -> float:
    """Return the common area of two boxes divided by the geometric mean of both."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0) * max(high, 0) / math.sqrt(area(one) * area(other))


def slow_scores(
    box: Box, own: NDArray[np.float64], cosines: NDArray[np.float32], boxes: NDArray[np.float64]
) -> list[tuple[float, list[float]]]:
    """Return the score of every hypothesis, and where it places the box."""
    sizes = boxes[:, 2:] - boxes[:, :2]
    across = moves(box[0], box[2], float(np.clip(np.median(sizes[:, 0]) / 2, 1 / 16, 1 / 4)))
    down = moves(box[1], box[3], float(np.clip(np.median(sizes[:, 1]) / 2, 1 / 16, 1 / 4)))
    likeness = [[math.exp(15 * (cosine - 1)) for cosine in row] for row in cosines.tolist()]
    likeness = [[each - sum(row) / len(row) for each in row] for row in likeness]
    scored: list[tuple[float, list[float]]] = []
    for (wide, right), (high, below) in itertools.product(across, down):
        if not 2**-0.6 < wide / high < 2**0.6:
            continue
        places = [
            [x0 * wide + right, y0 * high + below, x1 * wide + right, y1 * high + below]
            for x0, y0, x1, y1 in [box, *own.tolist()]
        ]
        total = norm = 0.0
        for region, other in itertools.product(range(len(own)), range(len(boxes))):
            value = overlap(places[1 + region], boxes[other].tolist())
            total += value * likeness[region][other]
            norm += value**2
        scored.append((total / math.sqrt(max(norm, 1e-12)) ** 0.8, places[0]))
    return scored


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_all_hypotheses_is_found(seed: int) -> None:
    generator = np.random.default_rng(seed)
    own, others = grid(4, 4)[[5, 6, 9]], generator.permutation(grid(3 + seed % 2, 4))[:9]
    box: Box = (0.2, 0.3, 0.7, 0.8)
    cosines = generator.uniform(-1, 1, (2, len(own), len(others))).astype(np.float32)
    for found, of_photo in zip(BoxFinder(box, own).find(cosines, others), cosines, strict=True):
        scored = slow_scores(box, own, of_photo, others)
        best = max(score for score, _ in scored)
        places = [place for score, place in scored if score > best - 1e-5]
        assert any(np.allclose(found, place, atol=1e-3) for place in places), (found, places)


MANY = unit_rows(np.random.default_rng(0), 81, 16)


@pytest.mark.parametrize(
    ("box", "own", "cosines", "boxes", "expected"),
    [
        # Without a better place, it stays.
        (
            (0.4, 0.4, 0.6, 0.6),
            grid(3, 3)[[4]],
            np.ones((1, 1, 9), dtype=np.float32),
            grid(3, 3),
            (0.4, 0.4, 0.6, 0.6),
        ),
        # Of many regions some are compared.
        ((0.0, 0.0, 1.0, 1.0), grid(9, 9), (MANY @ MANY.T)[None], grid(9, 9), (0, 0, 1, 1)),
        # Regions without an area do no harm.
        (
            (0.0, 0.0, 0.2, 0.2),
            np.array([(0.0, 0.0, 0.2, 0.2), (0.1, 0.0, 0.1, 0.0)]),
            np.array([[[0.1, 1.0], [0.1, 0.2]]], dtype=np.float32),
            np.array([(0.1, 0.1, 0.1, 0.1), (0.5, 0.5, 0.7, 0.7)]),
            pytest.approx((0.5, 0.5, 0.7, 0.7), abs=0.07),
        ),
    ],
    ids=["stays", "many", "without area"],
)
def test_boxes_are_found_by_hand(
    box: Box, own: NDArray[np.float64], cosines: Any, boxes: NDArray[np.float64], expected: Any
) -> None:
    [found] = BoxFinder(box, own).find(cosines, boxes)
    assert found == (expected if not isinstance(expected, tuple) else pytest.approx(expected))
