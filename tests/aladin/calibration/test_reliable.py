"""Which answers a calibration may judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aladin_network.calibration.calibration import LEAST_AUROC, Calibration, ShortTexts
from aladin_network.calibration.fitted_on import TextLengths
from aladin_network.calibration.measures import Estimate
from aladin_network.types import Direction

DIRECTIONS: tuple[Direction, Direction] = ("text_to_image", "image_to_text")


@pytest.fixture
def calibration(make_calibration: Callable[..., Calibration]) -> Calibration:
    """Of an AUROC of 0.9, fitted on texts of 5 to 20 words."""
    made = make_calibration("any")
    fitted_on = replace(made.fitted_on, text_lengths=TextLengths(low=5, high=20))
    return replace(made, fitted_on=fitted_on)


def with_auroc(calibration: Calibration, direction: Direction, auroc: float) -> Calibration:
    """Change the AUROC of one direction, of the probabilities from both stages' scores."""
    figures = calibration.figures.of(direction)
    estimate = Estimate(value=auroc, low=auroc - 0.1, high=auroc + 0.1)
    aligned = replace(figures.aligned, auroc={**figures.aligned.auroc, "probability": estimate})
    both = replace(calibration.figures, **{direction: replace(figures, aligned=aligned)})
    return replace(calibration, figures=both)


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (4.0, "text_length"),
        (5.0, None),
        (12.5, None),
        (20.0, None),
        (20.5, "text_length"),
        (None, None),
    ],
)
def test_texts_of_other_lengths_are_not_judged(
    calibration: Calibration, words: float | None, because: str | None
) -> None:
    for direction in DIRECTIONS:
        for aligned in (True, False):
            found = calibration.unreliable_because(direction, aligned=aligned, words=words)
            assert found == because


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_calibration_that_hardly_tells_judges_nothing(
    calibration: Calibration, direction: Direction
) -> None:
    good = with_auroc(calibration, direction, LEAST_AUROC)
    weak = with_auroc(calibration, direction, LEAST_AUROC - 0.001)
    assert good.unreliable_because(direction, words=10.0) is None
    assert weak.unreliable_because(direction, words=10.0) == "weak_calibration"
    # Each direction, and each kind of scores, has an AUROC of its own.
    assert weak.unreliable_because(direction, aligned=False, words=10.0) is None
    (other,) = set(DIRECTIONS) - {direction}
    assert weak.unreliable[direction] == "weak_calibration"
    assert weak.unreliable[other] is None


def test_a_calibration_without_lengths_judges_nothing(calibration: Calibration) -> None:
    old = replace(calibration, fitted_on=replace(calibration.fitted_on, text_lengths=None))
    assert old.unreliable_because("text_to_image", words=10.0) == "unknown_text_lengths"
    assert {old.unreliable[direction] for direction in DIRECTIONS} == {"unknown_text_lengths"}


def with_short_texts(calibration: Calibration, auroc: float = 0.9) -> Calibration:
    """Add models of texts of 1 to 6 words, which are those of the other direction."""
    figures = with_auroc(calibration, "text_to_image", auroc).figures.text_to_image
    short = ShortTexts(
        lengths=TextLengths(low=1, high=6),
        texts=100,
        text_to_image=calibration.image_to_text,
        figures=figures,
    )
    return replace(calibration, short_texts=short)


@pytest.mark.parametrize(
    ("typed", "words", "because"),
    [
        (1, 2.0, None),
        (6, 2.0, None),
        (6, 40.0, None),  # few words of many tokens each
        (7, 9.0, None),
        (7, 4.0, "text_length"),
        (None, 4.0, "text_length"),
        (None, 9.0, None),
    ],
)
def test_short_texts_are_judged_by_models_of_their_own(
    calibration: Calibration, typed: int | None, words: float, because: str | None
) -> None:
    both = with_short_texts(calibration)
    assert both.unreliable_because("text_to_image", words=words, typed=typed) == because
    expected = both.image_to_text if typed in (1, 6) else both.text_to_image
    assert both.of("text_to_image", typed) is expected
    # Photos have no short texts.
    assert both.unreliable_because("image_to_text", words=4.0, typed=typed) == "text_length"
    assert both.of("image_to_text", typed) is both.image_to_text


def test_each_kind_of_text_needs_an_auroc_of_its_own(calibration: Calibration) -> None:
    weak = with_short_texts(calibration, LEAST_AUROC - 0.001)
    assert weak.unreliable_because("text_to_image", typed=3) == "weak_calibration"
    assert weak.unreliable_because("text_to_image", words=10.0) is None
    assert weak.unreliable == {
        "text_to_image": None,
        "image_to_text": None,
        "captions": None,
        "short_texts": "weak_calibration",
    }
    only_short = with_short_texts(with_auroc(calibration, "text_to_image", 0.6))
    assert only_short.unreliable_because("text_to_image", typed=3) is None
    assert only_short.unreliable_because("text_to_image", words=10.0) == "weak_calibration"
    assert only_short.unreliable["text_to_image"] is None
    assert only_short.unreliable["captions"] == "weak_calibration"
    assert calibration.unreliable["short_texts"] == "text_length"


def test_a_calibration_of_other_photos_judges_nothing(calibration: Calibration) -> None:
    others = replace(with_short_texts(calibration), other_photos=True)
    for direction in DIRECTIONS:
        for typed in (3, 10, None):
            assert others.unreliable_because(direction, typed=typed) == "other_photos"
    assert set(others.unreliable.values()) == {"other_photos"}


def test_the_range_leaves_out_the_rare_lengths() -> None:
    # Of 1,000 captions five have one word and five have sixty.
    words = np.repeat([1, 8, 14, 60], [5, 600, 390, 5])
    assert TextLengths.of(words) == TextLengths(low=8, high=14)
    assert TextLengths.of(np.array([7])) == TextLengths(low=7, high=7)
    assert TextLengths.of(np.array([3, 6])) == TextLengths(low=3, high=6)
