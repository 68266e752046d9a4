from __future__ import annotations

import doctest

import pytest

from aladin_service.evidence import words as module
from aladin_service.evidence.words import are_right_to_left, visual_order

# Capitals stand for a script that runs from right to left, as in the examples of UAX 9.
HEBREW = {"DOG": "כלב", "RED": "אדום", "RUNS": "רץ"}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a red dog", "a red dog"),
        ("DOG RED RUNS", "RUNS RED DOG"),
        ("the DOG RED runs", "the RED DOG runs"),
        ("DOG the red RUNS", "RUNS the red DOG"),
        ("DOG , RED", "RED , DOG"),
        ("1 . DOG", "DOG . 1"),
        ("dog , RED !", "dog , ! RED"),
        ("1 2 3", "1 2 3"),
        ("", ""),
    ],
)
def test_words_of_mixed_scripts_stand_in_reading_order(text: str, seen: str) -> None:
    words = text.split()
    directions, of_text = are_right_to_left([HEBREW.get(word, word) for word in words])
    assert [words[place] for place in visual_order(directions, of_text)] == seen.split()


def test_every_word_stands_once_in_any_line() -> None:
    directions, of_text = are_right_to_left(["a", "כלב", "1", "b", "אדום", "c"] * 3)
    for start in range(18):
        for end in range(start, 19):
            order = visual_order(directions[start:end], of_text)
            assert sorted(order) == list(range(end - start))


def test_the_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(module).failed == 0
