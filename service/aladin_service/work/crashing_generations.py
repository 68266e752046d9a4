"""Generations that crash the processes that open or search them, and are refused.

A damaged file can crash native code without any Python exception. A worker process therefore
reports which generation it is about to open. If it dies before it has reported the result, workers
that are started later refuse the generation and serve the previous one.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

# Signals of a crash. SIGKILL is not among them, because it may have any cause, such as a system
# without free memory.
_FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS"})
# Consecutive ends of processes that open a generation, if none of them is a crash.
_ENDS = 2
# Crashes during searches, and the seconds within which they occur. One crash is not enough: a photo
# that is decoded at the same time may be the cause.
_SEARCH_FAULTS, _WITHIN_S = 3, 60.0
# A refused generation is opened again by a trial process, because the machine may have been at
# fault or the files may have been repaired. The interval doubles with each trial.
_FIRST_RETRY_S, _LONGEST_RETRY_S = 10.0, 600.0


class Attempt(NamedTuple):
    """An attempt of a worker to open a generation.

    Attributes:
        published: Identifier of the publication; see `IndexSource.published`.
        generation: Number of the generation.
    """

    published: Hashable
    generation: int


# Generations that a process refuses without opening them, with the reason for each.
Refusals = Mapping[Attempt, str]

# Called with a generation before it is opened, and with None afterwards, whatever the result.
OnAttempt = Callable[[Attempt | None], None]


class CrashingGenerations:
    """Decides from the ends of workers which generations to refuse; for the event loop only.

    Attributes:
        reasons: Reason for each generation that is refused.
    """

    def __init__(self) -> None:
        self.reasons: dict[Attempt, str] = {}
        self._ends: Counter[Attempt] = Counter()
        self._faults: dict[Attempt, deque[float]] = {}
        self._of_searches: set[Attempt] = set()
        self._retry_at_s = self._retry_s = 0.0

    def opened(self, attempt: Attempt) -> bool:
        """Record an opening; returns whether it ends the refusal for crashing at opening."""
        self._ends.pop(attempt, None)
        if attempt in self._of_searches:
            return False
        return self.reasons.pop(attempt, None) is not None

    def ended_opening(self, attempt: Attempt, how: str) -> bool:
        """Record the end of a worker that opened a generation; returns whether it is newly refused.

        `how`: the name of a signal, or an exit status.
        """
        self._ends[attempt] += 1
        if how not in _FAULTS and self._ends[attempt] < _ENDS:
            return False
        return self._refuse(attempt, f"a process died while opening it ({how})")

    def ended_searching(self, attempt: Attempt, how: str) -> bool:
        """Record the end of one that served a generation; returns whether it is newly refused."""
        if how not in _FAULTS:
            return False
        now = time.monotonic()
        times = self._faults.setdefault(attempt, deque(maxlen=_SEARCH_FAULTS))
        times.append(now)
        if len(times) < _SEARCH_FAULTS or now - times[0] > _WITHIN_S:
            return False
        self._of_searches.add(attempt)
        return self._refuse(
            attempt, f"{_SEARCH_FAULTS} processes died while searching it (last: {how})"
        )

    @property
    def retry_is_due(self) -> bool:
        """Whether a generation that crashed at opening is to be opened by a trial process.

        A generation that crashed during searches is served again only if it is published anew or
        the service is restarted.
        """
        waiting = self.reasons.keys() - self._of_searches
        return bool(waiting) and time.monotonic() >= self._retry_at_s

    def retried(self, how: str) -> bool:
        """Record the end of a trial process, which opened the published generation.

        Returns whether what crashed at opening is no longer refused: no signal ended the process.
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
    """Return whether a process ended by a crash, such as an invalid memory access."""
    return how in _FAULTS
