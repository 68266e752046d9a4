"""How long work of some size lately took, to tell how long the next will take."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort

# Share of the newest measurement in an average: a change of the machine's load shows after some
# five measurements, a single slow one does not.
_NEWEST = 0.2


class TimesBySize:
    """Average seconds for each size that has been seen; safe to use from any number of threads.

    A table and not a fitted line: it does not forget what a large piece of work takes while only
    small ones come, so the first large one after a quiet hour is judged rightly.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._seconds: dict[int, float] = {}
        self._sizes: list[int] = []  # those seen, ascending
        self._lock = threading.Lock()

    def observe(self, size: int, seconds: float) -> None:
        """Learn from a measurement.

        Args:
            size: at least 1; there should be few different ones.
            seconds: that it took.
        """
        with self._lock:
            known = self._seconds.get(size)
            if known is None:
                self._seconds[size] = seconds
                insort(self._sizes, size)
            else:
                self._seconds[size] = known + _NEWEST * (seconds - known)

    def expect(self, size: int) -> float:
        """Return the seconds that work of some size will take; 0.0 while nothing is known.

        Between two sizes that were seen it is interpolated. Outside of them a unit costs what it
        costs at the nearest: rather too much for a larger size, too little for a smaller one. A
        unit never costs more than at the nearest smaller size: one slow measurement of a large
        size would else keep such sizes from ever being tried again.

        Args:
            size: 0 or more.
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
