"""How many queries may be in the service at a time, so that those that are in are answered soon."""

from __future__ import annotations

# Of the limit, when answers take too long: not less at once, for one slow batch may be chance.
_LEAST_SHARE = 0.5


class AdmissionLimit:
    """Follows how long answers take: a limit that grows slowly and shrinks fast.

    Answers take longer in proportion to how many queries are in, by Little's law, so too long by
    half means too many by half. Nothing is foretold: a machine that becomes slower, a network with
    other batches or a neighbour on the processors shows in the answers themselves.
    """

    def __init__(self, least: int, most: int) -> None:
        """Begin with `most`.

        Args:
            least: never lower than this.
            most: never higher.
        """
        self._least = min(least, most)
        self._most = most
        self._limit = float(most)
        self._settled_s = 0.0
        self._has_refused = False  # since the last answer

    def admits(self, count: int) -> bool:
        """Say whether one more query may come in, beside those that wait or run."""
        self._has_refused |= count >= int(self._limit)
        return count < int(self._limit)

    def observe(self, took_s: float, bound_s: float, now_s: float) -> None:
        """Learn from an answer.

        Args:
            took_s: from when its query came.
            bound_s: how long it should take at most.
            now_s: by any clock that does not go back.
        """
        if took_s > bound_s:
            # Those that were let in before the last change still come out late.
            if now_s - took_s >= self._settled_s:
                share = max(_LEAST_SHARE, bound_s / took_s)
                self._limit = max(float(self._least), self._limit * share)
                self._settled_s = now_s
        elif self._has_refused:
            self._limit = min(float(self._most), self._limit + 1)
        self._has_refused = False
