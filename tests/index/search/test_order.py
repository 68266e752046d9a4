"""Hits by block, total and cosine, and their ranks, against sorts."""

import numpy as np
import pytest

from aladin_index.search.order import ordered_page, ranks_at
from aladin_index.search.terms import moved_words

TOTAL = np.float32([1, 3, 3, 2, 5])
MATCH = np.float32([0.9, 0.5, 0.5, 0.1, 0.0])


@pytest.mark.parametrize(
    ("block", "page", "expected"),
    [
        (5, slice(None), [4, 1, 2, 3, 0]),  # equal totals and cosines keep their order
        (2, slice(1, 4), [0, 2, 3]),
        (5, slice(7, 9), []),
    ],
)
def test_hits_are_ordered_by_block_and_then_by_total(
    block: int, page: slice, expected: list[int]
) -> None:
    assert ordered_page(TOTAL, MATCH, np.arange(5) // block, page).tolist() == expected


def test_of_equal_totals_the_greater_cosine_comes_first() -> None:
    found = ordered_page(np.float32([2, 2, 2]), np.float32([0.1, 0.3, 0.2]), None, slice(None))
    assert found.tolist() == [1, 2, 0]


def test_few_ranks_of_many_scores_are_those_of_a_sort() -> None:
    scores = np.random.default_rng(0).integers(0, 300, 5000).astype(np.float32)
    places = np.array([4999, 0, 17, 2500])
    everywhere = ranks_at(np.arange(5000), scores)
    assert everywhere[np.lexsort((np.arange(5000), -scores))].tolist() == list(range(1, 5001))
    assert ranks_at(places, scores).tolist() == everywhere[places].tolist()


def test_a_word_without_a_direction_stays_where_it_is() -> None:
    words, opposite = (
        np.float32([[1, 0]]),
        np.float32([[-2, 0]]),
    )  # half of it takes all of the word
    assert moved_words(words, [opposite]).tolist() == words.tolist()
