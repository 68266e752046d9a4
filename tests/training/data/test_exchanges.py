"""Captions with one word exchanged for another of its kind."""

from __future__ import annotations

import random

from aladin_training.data.exchanges import exchange_word

CAPTIONS = ("A brown dog runs on the beach .", "A Dog and a woman at the sea")


def exchanged(caption: str, captions: tuple[str, ...] = CAPTIONS) -> set[str | None]:
    return {exchange_word(caption, captions, random.Random(seed)) for seed in range(200)}


def test_one_word_is_exchanged_for_one_of_its_kind() -> None:
    made = exchanged("A man on the beach")
    assert "A woman on the beach" not in made  # another caption mentions one
    assert "A man on the street" in made
    for text in made:
        assert text is not None
        assert [*text.split()[:4]] == ["A", "man", "on", "the"]
    assert exchanged("Nothing of the lists") == {None}


def test_no_word_of_the_photos_captions_is_put_in() -> None:
    said = {word.lower() for caption in CAPTIONS for word in caption.split()}
    for text in exchanged(CAPTIONS[0]):
        assert text is not None
        words = zip(text.split(), CAPTIONS[0].split(), strict=True)
        (changed,) = [new for new, old in words if new != old]
        assert changed not in said


def test_relations_are_exchanged_on_request_only() -> None:
    caption = "Two pictures without a frame"
    assert exchange_word(caption, [caption], random.Random(0)) is None
    made = {
        exchange_word(caption, [caption], random.Random(seed), relations=True)
        for seed in range(200)
    }
    numbers = {f"{number} pictures without a frame" for number in ("three", "four", "five")}
    assert made == numbers | {"Two pictures with a frame"}
