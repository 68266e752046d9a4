"""Which generations end the processes that open or search them, and are refused for it.

What a damaged file does to native code is not always an error that Python sees. A worker process
says which generation it is about to open; where it ends before it has said how that went, the
generation is refused by the workers that are started next, and they go on with the one before.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

# Signals by which a process ends that does what it must not. SIGKILL may come from anywhere, such
# as from a system without memory.
_FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS"})
# Ends while it is opened that need not be its fault, one after the other.
_ENDS = 2
# Faults while it is searched, within so many seconds. Others than the index may be at fault, such
# as a photo that is decoded meanwhile: once is not enough.
_SEARCH_FAULTS, _WITHIN_S = 3, 60.0
# A refused generation is opened again by a process that nobody depends on: the fault may have been
# the machine's, or the files are put right. After so long, and twice as long each time.
_FIRST_RETRY_S, _LONGEST_RETRY_S = 10.0, 600.0


class Attempt(NamedTuple):
    """A generation that a worker opens.

    Attributes:
        published: what tells the publication from others, see `IndexSource.published`.
        generation: its number.
    """

    published: Hashable
    generation: int


# Why generations are refused that the process itself has not tried.
Refusals = Mapping[Attempt, str]

# Told what is about to be opened, and None when that is through, whatever came of it.
OnAttempt = Callable[[Attempt | None], None]


class CrashingGenerations:
    """Learns from how workers end. Not thread-safe: all is called on one event loop.

    Attributes:
        reasons: why each generation is refused.
    """

    def __init__(self) -> None:
        """Refuse none."""
        self.reasons: dict[Attempt, str] = {}
        self._ends: Counter[Attempt] = Counter()
        self._faults: dict[Attempt, deque[float]] = {}
        self._of_searches: set[Attempt] = set()
        self._retry_at_s = self._retry_s = 0.0

    def opened(self, attempt: Attempt) -> bool:
        """Hear that a worker has opened a generation.

        Returns:
            Whether it was refused for ending others while they opened it, and is no more.
        """
        self._ends.pop(attempt, None)
        if attempt in self._of_searches:
            return False
        return self.reasons.pop(attempt, None) is not None

    def ended_opening(self, attempt: Attempt, how: str) -> bool:
        """Hear that a worker has ended while it opened a generation.

        Args:
            attempt: what it was at.
            how: the name of a signal, or an exit status.

        Returns:
            Whether the generation is refused from now on, and was not before.
        """
        self._ends[attempt] += 1
        if how not in _FAULTS and self._ends[attempt] < _ENDS:
            return False
        return self._refuse(attempt, f"a process ended while it opened it ({how})")

    def ended_searching(self, attempt: Attempt, how: str) -> bool:
        """Hear that a worker has ended that answered from a generation.

        Args:
            attempt: by which the worker opened it.
            how: the name of a signal, or an exit status.

        Returns:
            Whether the generation is refused from now on, and was not before.
        """
        if how not in _FAULTS:
            return False
        now = time.monotonic()
        times = self._faults.setdefault(attempt, deque(maxlen=_SEARCH_FAULTS))
        times.append(now)
        if len(times) < _SEARCH_FAULTS or now - times[0] > _WITHIN_S:
            return False
        self._of_searches.add(attempt)
        return self._refuse(
            attempt, f"{_SEARCH_FAULTS} processes ended while they searched it (the last: {how})"
        )

    @property
    def retry_is_due(self) -> bool:
        """Whether one of those that could not be opened may be opened again by way of trial.

        Not one that could: only a publication, or a new start of the service, brings it back.
        """
        waiting = self.reasons.keys() - self._of_searches
        return bool(waiting) and time.monotonic() >= self._retry_at_s

    def retried(self, how: str) -> bool:
        """Hear how a process ended that opened by way of trial what is published.

        Args:
            how: the name of a signal, or an exit status.

        Returns:
            Whether those that could not be opened are refused no more: by whichever status, it
            ended by itself.
        """
        if not how.startswith("exit status"):
            self._wait()
            return False
        for attempt in self.reasons.keys() - self._of_searches:
            del self.reasons[attempt]
            self._ends.pop(attempt, None)
        self._retry_s = 0.0
        return True

    def _refuse(self, attempt: Attempt, reason: str) -> bool:
        is_new = attempt not in self.reasons
        if is_new:
            self.reasons[attempt] = reason
            self._wait()
        return is_new

    def _wait(self) -> None:
        self._retry_s = min(max(_FIRST_RETRY_S, 2 * self._retry_s), _LONGEST_RETRY_S)
        self._retry_at_s = time.monotonic() + self._retry_s


def is_fault(how: str) -> bool:
    """Whether a process ended by a fault of its own, such as reading outside of its memory."""
    return how in _FAULTS
