"""Which answers a calibration may judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aladin_network.calibration.calibration import LEAST_AUROC, Calibration
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
    assert weak.unreliable == {direction: "weak_calibration", other: None}


def test_a_calibration_without_lengths_judges_nothing(calibration: Calibration) -> None:
    old = replace(calibration, fitted_on=replace(calibration.fitted_on, text_lengths=None))
    assert old.unreliable_because("text_to_image", words=10.0) == "unknown_text_lengths"
    assert set(old.unreliable.values()) == {"unknown_text_lengths"}


def test_the_range_leaves_out_the_rare_lengths() -> None:
    # Of 1,000 captions five have one word and five have sixty.
    words = np.repeat([1, 8, 14, 60], [5, 600, 390, 5])
    assert TextLengths.of(words) == TextLengths(low=8, high=14)
    assert TextLengths.of(np.array([7])) == TextLengths(low=7, high=7)
    assert TextLengths.of(np.array([3, 6])) == TextLengths(low=3, high=6)
