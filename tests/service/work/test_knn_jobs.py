"""Hits that look like a better one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aladin_service.work.knn_jobs import first_of_each_kind


def on_circle(*degrees: float) -> np.ndarray:
    """Unit vectors; the cosine of two is that of the angle between them."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_of_a_chain_of_likenesses_every_other_link_stays() -> None:
    # 10 degrees apart: neighbours are alike (0.985), those next but one are not (0.940).
    assert first_of_each_kind(on_circle(0, 10, 20, 30), 0.95) == [0, 2]


def test_the_better_one_of_two_stays() -> None:
    assert first_of_each_kind(on_circle(90, 0, 91, 1, 180), 0.95) == [0, 1, 4]


def test_nothing_is_left_out_of_nothing() -> None:
    assert first_of_each_kind(np.zeros((0, 2), dtype=np.float32), 0.9) == []


@given(st.lists(st.integers(0, 359), max_size=20), st.floats(0.1, 0.99))
def test_what_is_kept_is_unlike_and_what_is_not_is_like_something_kept(
    degrees: list[int], threshold: float
) -> None:
    points = on_circle(*degrees)
    kept = first_of_each_kind(points, threshold)
    for place, point in enumerate(points):
        likes = [each for each in kept if float(points[each] @ point) >= threshold]
        if place in kept:
            assert likes == [place]
        else:
            assert min(likes) < place
