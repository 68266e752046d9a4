"""Whether there is time for the second stage: by what it took before, and by the clock."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.search.deadline import OutOfTimeError, RerankDeadline


class Clock:
    """Stands for `time.monotonic`; every scored row takes a millisecond."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.scored = 0

    def __call__(self) -> float:
        return self.now_s

    def align(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self.now_s += 0.001 * len(rows)
        self.scored += len(rows)
        return (2 * rows).astype(np.float32)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("aladin_index.search.deadline.time.monotonic", clock)
    return clock


def test_without_a_deadline_the_scorer_is_the_same(clock: Clock) -> None:
    align = clock.align
    assert RerankDeadline().guard(align, "text_to_image", 10, None) is align


def test_scores_are_the_same_in_parts(clock: Clock) -> None:
    rows = np.arange(5000, dtype=np.int64)[::-1]
    score = RerankDeadline().guard(clock.align, "text_to_image", len(rows), clock.now_s + 60)
    np.testing.assert_array_equal(score(rows), 2.0 * rows)
    assert clock.scored == 5000


def test_where_nothing_is_known_the_clock_ends_it_between_parts(clock: Clock) -> None:
    rows = np.arange(5000, dtype=np.int64)
    score = RerankDeadline().guard(clock.align, "text_to_image", len(rows), clock.now_s + 1.5)
    with pytest.raises(OutOfTimeError):
        score(rows)
    assert clock.scored == 2048  # after 1.024 s there was time yet, after 2.048 s none


def test_what_is_known_of_the_direction_decides_beforehand(clock: Clock) -> None:
    deadline = RerankDeadline()
    deadline.observe("text_to_image", 100, 0.100)
    guard = deadline.guard
    guard(clock.align, "text_to_image", 100, clock.now_s + 0.101)
    with pytest.raises(OutOfTimeError):
        guard(clock.align, "text_to_image", 100, clock.now_s + 0.099)
    guard(clock.align, "text_to_image", 50, clock.now_s + 0.051)
    with pytest.raises(OutOfTimeError):
        guard(clock.align, "text_to_image", 1000, clock.now_s + 0.999)
    guard(clock.align, "image_to_text", 1000, clock.now_s + 0.001)
    assert clock.scored == 0


def test_a_deadline_that_is_over_is_over_whatever_is_known(clock: Clock) -> None:
    with pytest.raises(OutOfTimeError):
        RerankDeadline().guard(clock.align, "image_to_text", 1, clock.now_s - 0.001)


def test_what_was_slow_long_ago_is_tried_again_by_one_query_at_a_time(clock: Clock) -> None:
    deadline = RerankDeadline()
    rows = np.arange(100, dtype=np.int64)  # in truth 0.1 s
    deadline.observe("text_to_image", len(rows), 20.0)
    tries = 0
    for _ in range(1000):
        clock.now_s += 0.5
        try:
            score = deadline.guard(clock.align, "text_to_image", len(rows), clock.now_s + 0.3)
        except OutOfTimeError:
            continue
        tries += 1
        score(rows)
        deadline.observe("text_to_image", len(rows), 0.1)
    # From 20 s to below 0.3 s by a fifth each, 21 of them 10 s apart; from then on all of them.
    assert tries == pytest.approx(21 + 1000 - 21 * 20, abs=30)
    with pytest.raises(OutOfTimeError):  # what is over is not tried
        deadline.guard(clock.align, "text_to_image", len(rows), clock.now_s - 1)
