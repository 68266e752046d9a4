"""How long batches of queries take: what admission and the size of batches are decided by."""

from __future__ import annotations

# Weight of the newest batch in an average: other load on the processors counts after five batches,
# less than half a second; a single slow batch hardly does.
_NEWEST = 0.2
# Variance of sizes, in squared queries, that a measured slope is worth as much as the assumed one.
_ASSUMED_VARIANCE = 0.5
# Largest factor by which a time counts as longer than expected: a single long one may be chance.
_MOST_RISE = 4.0
# Expected times are longer than the average by so many average errors.
_ERRORS = 1.0


class BatchTimes:
    """Seconds that a batch of one queue takes, by its size, learnt from the latest batches.

    The estimate is a line through the average size and time of the latest batches. Its slope is
    that by which times have varied with sizes; as long as sizes hardly vary, as under a constant
    load, it is that of a time in proportion to the size, which is too steep rather than too flat.
    Only what was measured lately counts, because a table of the times of each size is wrong as soon
    as something else uses the processors.

    Attributes:
        lone_s: Seconds of a query that has the service to itself; before there has been one, those
            of the fastest batch; 0.0 without measurements.
    """

    def __init__(self) -> None:
        self.lone_s = 0.0
        self._has_lone = False
        self._seen = 0
        self._size, self._seconds = 1.0, 0.0  # averages
        self._variance, self._covariance = 0.0, 0.0  # of the sizes; of the sizes and the seconds
        self._slope_s = 0.0  # time of one more query
        self._error_s = 0.0  # average distance of a time from the line

    def observe(self, size: int, seconds: float, *, alone: bool, cached: bool) -> None:
        """Learn from a batch of which `size` queries were answered within `seconds` of its start.

        `alone`: a single query, beside which nothing ran or waited; `cached`: all encodings came
        from the cache.
        """
        counted_s = min(seconds, _MOST_RISE * self.expect(size)) if self._seen else seconds
        self._seen += 1
        newest = max(_NEWEST, 1 / self._seen)
        by_size, by_s = size - self._size, counted_s - self._seconds
        if self._seen > 1:
            error_s = abs(by_s - self._slope_s * by_size)
            self._error_s += newest * (error_s - self._error_s)
        self._size += newest * by_size
        self._seconds += newest * by_s
        # A new average moves towards the new value: what remains of the two distances' product.
        rest = 1 - newest
        self._variance = rest * (self._variance + newest * by_size**2)
        self._covariance = rest * (self._covariance + newest * by_size * by_s)
        each_s = self._seconds / self._size
        slope_s = (self._covariance + _ASSUMED_VARIANCE * each_s) / (
            self._variance + _ASSUMED_VARIANCE
        )
        self._slope_s = min(max(slope_s, 0.0), each_s)
        if cached:
            return
        # Under load all queries take longer, and what is admitted must not grow with the load. Only
        # a query by itself raises the time of a lone query, and only a batch of several, which
        # takes longer than one query, shows that it is too high.
        if alone:
            known_s = self.lone_s if self._has_lone else seconds
            self.lone_s = known_s + _NEWEST * (min(seconds, _MOST_RISE * known_s) - known_s)
            self._has_lone = True
        elif not self._has_lone or size > 1:
            self.lone_s = min(self.lone_s or seconds, seconds)

    def expect(self, size: int) -> float:
        """Return the seconds that a batch should take, and a margin by how much times vary."""
        by_size = self._slope_s * (size - self._size)
        return self._seconds + by_size + _ERRORS * self._error_s

    def largest(self, seconds: float, most: int) -> int:
        """Return the size of the largest batch that should take at most `seconds`, at least 1."""
        spare_s, slope_s = seconds - self.expect(1), self._slope_s
        if spare_s >= slope_s * (most - 1):
            return most
        return max(1, 1 + int(spare_s / slope_s)) if slope_s > 0 else 1
