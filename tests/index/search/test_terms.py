"""Examples that move the words of a query, against loops and a hand-worked case."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.search.terms import moved_words


def unit(*rows: tuple[float, ...]) -> NDArray[np.float32]:
    """Rows of length 1."""
    values = np.array(rows, dtype=np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def test_a_word_moves_to_the_best_region_of_what_is_liked() -> None:
    words = unit((1, 0, 0))
    liked = unit((3, 4, 0), (0, 1, 0))  # the first is nearer to the word: (.6, .8, 0)
    moved = moved_words(words, [liked])
    assert moved[0] == pytest.approx(unit((1.3, 0.4, 0))[0], abs=1e-6)


def test_every_word_moves_by_the_mean_over_the_examples() -> None:
    random = np.random.default_rng(0)

    def drawn(count: int) -> NDArray[np.float32]:
        return unit(*map(tuple, random.normal(size=(count, 5)).tolist()))

    words, likes = drawn(4), [drawn(3), drawn(7), drawn(1)]
    moved = moved_words(words, likes)
    for place, word in enumerate(words):
        total = word.astype(float)
        for regions in likes:
            best = max(regions, key=lambda region, word=word: float(region @ word))
            total = total + 0.5 * best / len(likes)
        assert moved[place] == pytest.approx(total / np.linalg.norm(total), abs=1e-5)
    assert moved.dtype == np.float32


def test_a_word_without_a_direction_stays_where_it_is() -> None:
    words = unit((1, 0))
    opposite = np.array([[-2, 0]], dtype=np.float32)  # half of it takes all of the word
    assert moved_words(words, [opposite]).tolist() == words.tolist()
