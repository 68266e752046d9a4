"""Whether there is time for the second stage: an estimate before it, a look at the clock in it."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from aladin.fusion import Direction
from index.ranking import AlignScorer
from index.times_by_size import TimesBySize

# Candidates that are scored between two looks at the clock: the native kernel takes one
# millisecond for them.
_ROWS_A_LOOK = 1024

# What was learnt so long ago is tried once more, against all odds: where every query has a
# deadline, a machine that was slow for a minute would else never re-rank again.
_RETRY_S = 10.0


class OutOfTimeError(Exception):
    """The second stage was given up; it never leaves the searcher."""


class RerankDeadline:
    """Knows how long the second stage takes, and ends it where the time is up.

    Safe to use from any number of threads.
    """

    def __init__(self) -> None:
        """Know nothing: the first query tries, and looks at the clock."""
        self._times: dict[Direction, TimesBySize] = {
            "text_to_image": TimesBySize(),
            "image_to_text": TimesBySize(),
        }
        self._learnt_s: dict[Direction, float] = {}

    def guard(
        self, align: AlignScorer, direction: Direction, candidates: int, deadline_s: float | None
    ) -> AlignScorer:
        """Return a scorer that scores the same, as long as there is time.

        Args:
            align: scores rows.
            direction: of the query.
            candidates: that will be scored in all.
            deadline_s: by `time.monotonic`; after it the scorer raises an `OutOfTimeError`. None:
                it never does.

        Raises:
            OutOfTimeError: they will not be through by then, as far as one can tell; now and then
                one query may try nevertheless.
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
            scores = np.empty(len(rows), dtype=np.float32)
            for start in range(0, len(rows), _ROWS_A_LOOK):
                if time.monotonic() > deadline_s:
                    raise OutOfTimeError
                part = slice(start, start + _ROWS_A_LOOK)
                scores[part] = align(rows[part])
            return scores

        return score

    def observe(self, direction: Direction, candidates: int, seconds: float) -> None:
        """Learn how long a second stage took that ran to its end.

        Args:
            direction: of the query.
            candidates: that it scored, at least 1.
            seconds: that it took.
        """
        # A filter may leave any number of candidates: the few powers of two stand for them all.
        size = 1 << (candidates - 1).bit_length()
        self._times[direction].observe(size, seconds * size / candidates)
        self._learnt_s[direction] = time.monotonic()
