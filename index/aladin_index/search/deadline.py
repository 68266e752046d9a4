"""How long the second stage takes, and its end at the deadline of a search."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, insort
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aladin_network.types import Direction

# Scores rows; the rows are the last axis of the scores.
AlignScorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]

# Weight of the newest measurement in an average: a change of the machine's load takes effect after
# about five measurements, a single slow one does not.
_NEWEST = 0.2

# Candidates that are scored between two checks of the deadline: the native kernel takes one
# millisecond for them.
_ROWS_A_CHECK = 1024

# A measurement of this age is ignored even if no time would remain: if every query has a deadline,
# a machine that was slow for a minute would otherwise never re-rank again.
_RETRY_S = 10.0


class TimesBySize:
    """Average seconds for each size of work seen so far; thread-safe.

    A table instead of a fitted line: it keeps the time of large pieces of work while only small
    ones come, so the first large one after a quiet hour is estimated correctly.
    """

    def __init__(self) -> None:
        """Start without measurements."""
        self._seconds: dict[int, float] = {}
        self._sizes: list[int] = []  # sizes seen, ascending
        self._lock = threading.Lock()

    def observe(self, size: int, seconds: float) -> None:
        """Update the average with a measurement; there should be few different sizes."""
        with self._lock:
            known = self._seconds.get(size)
            if known is None:
                self._seconds[size] = seconds
                insort(self._sizes, size)
            else:
                self._seconds[size] = known + _NEWEST * (seconds - known)

    def expect(self, size: int) -> float:
        """Return the expected seconds for work of this size; 0.0 without measurements.

        Times between two known sizes are interpolated. Outside of them, a unit costs what it costs
        at the nearest size: rather too much for a larger size, too little for a smaller one. A
        unit never costs more than at the nearest smaller size; otherwise one slow measurement of
        a large size would keep such sizes from ever being tried again.
        """
        with self._lock:
            if not self._sizes:
                return 0.0
            place = bisect_left(self._sizes, size)
            if place == len(self._sizes):
                largest = self._sizes[-1]
                return self._seconds[largest] * size / largest
            above = self._sizes[place]
            if place == 0:
                return self._seconds[above] * size / above
            below = self._sizes[place - 1]
            share = (size - below) / (above - below)
            between = self._seconds[below] * (1 - share) + self._seconds[above] * share
            return min(between, self._seconds[below] * size / below)


class OutOfTimeError(Exception):
    """The second stage ran out of time; the searcher handles it."""


class RerankDeadline:
    """Estimates the duration of the second stage, and stops it at its deadline.

    Safe to use from any number of threads.
    """

    def __init__(self) -> None:
        """Start without measurements: the first query runs until its deadline."""
        self._times: dict[Direction, TimesBySize] = {
            "text_to_image": TimesBySize(),
            "image_to_text": TimesBySize(),
        }
        self._learnt_s: dict[Direction, float] = {}

    def guard(
        self, align: AlignScorer, direction: Direction, candidates: int, deadline_s: float | None
    ) -> AlignScorer:
        """Return a scorer of the same scores that raises `OutOfTimeError` after `deadline_s`.

        So does this method if the estimate for that many candidates exceeds the deadline; every few
        seconds one query is tried nevertheless. The time is that of `time.monotonic`.
        """
        if deadline_s is None:
            return align
        now_s = time.monotonic()
        if now_s + self._times[direction].expect(candidates) > deadline_s:
            age_s = now_s - self._learnt_s.get(direction, now_s)
            if now_s > deadline_s or age_s < _RETRY_S:
                raise OutOfTimeError
            self._learnt_s[direction] = now_s

        def score(rows: NDArray[np.int64]) -> NDArray[np.float32]:
            parts: list[NDArray[np.float32]] = []
            for start in range(0, max(len(rows), 1), _ROWS_A_CHECK):
                if time.monotonic() > deadline_s:
                    raise OutOfTimeError
                parts.append(align(rows[start : start + _ROWS_A_CHECK]))
            return np.concatenate(parts, axis=-1)

        return score

    def observe(self, direction: Direction, candidates: int, seconds: float) -> None:
        """Record the duration of a completed second stage."""
        # A filter may leave any number of candidates: a few powers of two represent them all.
        size = 1 << (candidates - 1).bit_length()
        self._times[direction].observe(size, seconds * size / candidates)
        self._learnt_s[direction] = time.monotonic()
