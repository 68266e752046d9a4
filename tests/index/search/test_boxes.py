"""Boxes of queries: which regions are inside."""

import numpy as np

from aladin_index.search.box_query import box_areas, overlap_areas, regions_inside

# A grid of two rows and four columns, 0 to 3 above 4 to 7.
GRID = np.array([(x / 4, y / 2, (x + 1) / 4, (y + 1) / 2) for y in range(2) for x in range(4)])


def test_overlaps_and_areas_by_hand() -> None:
    others = np.array([(0.125, 0.25, 0.5, 1.0), (0.9, 0.0, 1.0, 0.1)])
    shared = overlap_areas(GRID[[0, 1, 5, 3]], others)
    half = 0.125 * 0.25  # of the first cell: half its width and half its height
    expected = [(half, 0), (2 * half, 0), (4 * half, 0), (0, 0.01)]
    np.testing.assert_allclose(shared, expected, atol=1e-12)
    np.testing.assert_allclose(box_areas(GRID), 0.125)


def test_a_third_of_a_region_is_inside() -> None:
    # All of the second and third cell, and a bit more or less than a third of the first.
    for inside, regions in ((0.34, [0, 1, 2]), (0.33, [1, 2])):
        box = (0.25 * (1 - inside), 0.0, 0.75, 0.5)
        assert regions_inside(GRID, box).tolist() == regions


def test_a_small_box_takes_the_region_that_fits_it_best() -> None:
    assert regions_inside(GRID, (0.26, 0.6, 0.3, 0.7)).tolist() == [5]
    # Both boxes contain it; it is more of the second.
    boxes = np.array([(0, 0, 1, 1), (0, 0, 0.5, 0.5)])
    assert regions_inside(boxes, (0.1, 0.1, 0.2, 0.2)).tolist() == [1]


def test_a_region_without_an_area_is_in_no_box() -> None:
    boxes = np.array([(0.5, 0.5, 0.5, 0.9), (0, 0, 1, 1)])
    assert regions_inside(boxes, (0, 0, 1, 1)).tolist() == [1]
