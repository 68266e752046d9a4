"""Noun phrases of captions, and shorter texts made of them."""

from __future__ import annotations

import random

import pytest

from aladin_training.data.phrases import (
    Wording,
    draw_short_text,
    find_phrases,
    meanings_of,
)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("A little boy in a red jacket .", ["A little boy", "a red jacket"]),
        ("Two dogs run through the snow", ["Two dogs", "the snow"]),
        ("a man jumps off a ramp on his bike", ["a man", "a ramp", "his bike"]),
        ("A woman is walking a running dog", ["A woman", "a running dog"]),
        ("A brown and white dog swims", ["A brown and white dog"]),
        ("boys, girls", ["boys", "girls"]),
        ("a man dressed in black", ["a man", "black"]),
        ("a picture of a circle to the left of a square", ["a circle", "a square"]),
        ("they are running", []),
        ("", []),
    ],
)
def test_phrases_lie_between_function_words_and_verbs(text: str, phrases: list[str]) -> None:
    assert [text[each.start : each.end] for each in find_phrases(text)] == phrases


def test_short_texts_follow_from_the_caption() -> None:
    caption = "an orange striped circle above a big blue square in the snow"
    drawn = {draw_short_text(caption, random.Random(seed)) for seed in range(400)} - {None}
    assert caption not in drawn
    assert {"circle", "square", "a circle", "an orange circle", "a striped circle"} <= drawn
    assert {"orange striped circle", "the snow", "snow", "orange"} <= drawn
    assert "an orange striped circle above a big blue square" in drawn
    # Of several phrases too, any adjective may be missing, so that no text needs its colours.
    both = [text for text in drawn if text and "circle above" in text and "square" in text]
    for adjective in ("orange", "striped", "big", "blue"):
        assert 0.2 < sum(adjective in text for text in both) / len(both) < 0.9
    assert "a orange circle" not in drawn
    assert draw_short_text(caption, random.Random(7)) == draw_short_text(caption, random.Random(7))
    for silent in ("snow", "they are running"):
        assert draw_short_text(silent, random.Random(0)) is None
    wording = Wording([caption])
    assert all(text and wording.holds(meanings_of(text)) for text in drawn)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a red ball", True),
        ("balls", True),
        ("a small ball", True),
        ("dog and a ball", True),
        ("a red dog", False),
        ("a brown ball", False),
        ("a cat", False),
        ("a ball and a cat", False),
    ],
)
def test_words_hold_if_one_phrase_of_the_captions_says_them(text: str, holds: bool) -> None:
    wording = Wording(["A brown dog plays with a small red ball .", "two dogs"])
    assert wording.holds(meanings_of(text)) is holds
