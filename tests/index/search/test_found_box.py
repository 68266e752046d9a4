"""Where a box is found, against all hypotheses by loops."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.search.found_box import BoxFinder
from aladin_index.search.results import Box


def grid(columns: int, rows: int) -> NDArray[np.float64]:
    """Boxes of a grid's cells, row by row."""
    places = itertools.product(range(rows), range(columns))
    cells = [(x / columns, y / rows, (x + 1) / columns, (y + 1) / rows) for y, x in places]
    return np.array(cells)


def unit(generator: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Random vectors of length 1."""
    values = generator.normal(size=shape)
    return (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(np.float32)


def moved(
    box: NDArray[np.float64], one: NDArray[np.float64], to: NDArray[np.float64]
) -> list[float]:
    """Return where a box is if one region is moved, and scaled, to another."""
    found: list[float] = []
    for low in (0, 1):
        scale = (to[low + 2] - to[low]) / (one[low + 2] - one[low])
        found += [to[low] + (edge - one[low]) * scale for edge in (box[low], box[low + 2])]
    x0, x1, y0, y1 = found
    return [x0, y0, x1, y1]


def overlap(one: list[float], other: NDArray[np.float64]) -> float:
    """Return the intersection of two boxes divided by their union."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    if wide <= 0 or high <= 0:
        return 0.0
    areas = [(each[2] - each[0]) * (each[3] - each[1]) for each in (one, other)]
    return wide * high / (sum(areas) - wide * high)


def slow_scores(
    box: Box,
    own: NDArray[np.float64],
    cosines: NDArray[np.float32],
    boxes: NDArray[np.float64],
) -> list[tuple[float, list[float]]]:
    """Return the score of every hypothesis, and where it places the box."""
    scored: list[tuple[float, list[float]]] = []
    for one, to in [(own[0], own[0]), *itertools.product(own, boxes)]:
        scales = (to[2:] - to[:2]) / (one[2:] - one[:2])
        if not all(0.4 <= scale <= 2.5 for scale in scales.tolist()):
            continue
        score = 0.0
        for region, other in itertools.product(range(len(own)), range(len(boxes))):
            placed = moved(own[region], one, to)
            score += float(cosines[region, other]) * overlap(placed, boxes[other])
        found = moved(np.array(box), one, to)
        scored.append((score, [min(max(edge, 0.0), 1.0) for edge in found]))
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


def test_what_has_moved_is_found_where_it_is() -> None:
    generator = np.random.default_rng(0)
    cells = grid(7, 7)
    inside = [8, 9, 15, 16]  # two by two cells, from the second column and row
    photo = unit(generator, 49, 16)
    elsewhere = unit(generator, 49, 16)
    for place, number in enumerate([31, 32, 38, 39]):  # from the fourth column, the fifth row
        elsewhere[number] = photo[inside[place]]
    finder = BoxFinder((1 / 7, 1 / 7, 3 / 7, 3 / 7), cells[inside])
    tokens = np.stack([photo, elsewhere])
    cosines = np.einsum("rd,ptd->prt", photo[inside], tokens)
    itself, other = finder.find(cosines, cells)
    assert itself == pytest.approx((1 / 7, 1 / 7, 3 / 7, 3 / 7), abs=1e-6)
    assert other == pytest.approx((3 / 7, 4 / 7, 5 / 7, 6 / 7), abs=1e-6)


def test_what_is_larger_is_found_larger() -> None:
    tokens = np.eye(4, dtype=np.float32)
    # The same four things, twice as large, as detected boxes.
    small = np.array([(x, y, x + 0.1, y + 0.1) for y in (0.1, 0.2) for x in (0.1, 0.2)])
    large = np.array([(x, y, x + 0.2, y + 0.2) for y in (0.5, 0.7) for x in (0.4, 0.6)])
    [found] = BoxFinder((0.1, 0.1, 0.3, 0.3), small).find(tokens[None], large)
    assert found == pytest.approx((0.4, 0.5, 0.8, 0.9), abs=1e-6)


def test_a_box_is_found_inside_of_the_photo() -> None:
    cells = grid(2, 2)
    cosines = np.zeros((1, 1, 4), dtype=np.float32)
    cosines[0, 0, 3] = 1.0  # the last cell is the query's region, which is the first
    [found] = BoxFinder((0.0, 0.0, 0.9, 0.9), cells[:1]).find(cosines, cells)
    assert found == pytest.approx((0.5, 0.5, 1.0, 1.0), abs=1e-6)


def test_without_a_better_place_the_box_stays() -> None:
    cells = grid(3, 3)
    box: Box = (0.4, 0.4, 0.6, 0.6)
    [found] = BoxFinder(box, cells[[4]]).find(np.ones((1, 1, 9), dtype=np.float32), cells)
    assert found == pytest.approx(box, abs=1e-6)


def test_regions_without_an_area_are_no_hypothesis() -> None:
    boxes = np.array([(0.1, 0.1, 0.1, 0.1), (0.5, 0.5, 0.7, 0.7)])
    cosines = np.array([[[1.0, 0.5], [0.9, 0.1]]], dtype=np.float32)
    [found] = BoxFinder((0.0, 0.0, 0.2, 0.2), np.array([(0, 0, 0.2, 0.2), (0.1, 0, 0.1, 0)])).find(
        cosines, boxes
    )
    assert found == pytest.approx((0.5, 0.5, 0.7, 0.7), abs=1e-6)
