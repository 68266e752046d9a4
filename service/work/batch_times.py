"""How long batches of queries lately took, by their size: what a waiting line is judged by."""

from __future__ import annotations

from bisect import bisect_left, insort

# Share of the newest measurement in an average: a change of the machine's load shows after some
# five batches, one slow batch does not.
_NEWEST = 0.2


class BatchTimes:
    """Average seconds of a batch of each size that has been seen.

    A table and not a fitted line: it does not forget what a large batch takes while only single
    queries come, so the first burst after a quiet hour is judged rightly.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._seconds: dict[int, float] = {}
        self._sizes: list[int] = []  # those seen, ascending

    def observe(self, size: int, seconds: float) -> None:
        """Learn from a batch.

        Args:
            size: its queries, at least 1.
            seconds: from when a slot took it to its last answer.
        """
        known = self._seconds.get(size)
        if known is None:
            insort(self._sizes, size)
            known = seconds
        self._seconds[size] = known + _NEWEST * (seconds - known)

    def expect(self, size: int) -> float:
        """Return the seconds that a batch of some size will take; 0.0 while nothing is known.

        Between two sizes that were seen it is interpolated; beyond them a query costs what it
        costs in the nearest, which is too much for a larger batch and too little for a smaller.

        Args:
            size: 0 or more queries.
        """
        sizes, seconds = self._sizes, self._seconds
        if not sizes:
            return 0.0
        place = bisect_left(sizes, size)
        if place == len(sizes):
            return seconds[sizes[-1]] * size / sizes[-1]
        above = sizes[place]
        if above == size or place == 0:
            return seconds[above] * size / above
        below = sizes[place - 1]
        share = (size - below) / (above - below)
        return seconds[below] + share * (seconds[above] - seconds[below])
