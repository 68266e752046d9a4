"""Hits by block, total and cosine, and their ranks, against sorts."""

import numpy as np

from aladin_index.search.order import ordered_page, ranks_at
from aladin_index.search.terms import moved_words


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
