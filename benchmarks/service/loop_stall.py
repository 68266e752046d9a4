"""Measures how long the event loop of a service stalls, from a separate process."""

from __future__ import annotations

import http.client
import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import cast

_PAUSE_S = 0.01
# A service that stalls for longer has already failed; the probe continues after that.
_PATIENCE_S = 120.0
_START_S = 60.0


class LoopStall:
    """Requests /healthz every 10 ms, which the event loop alone answers.

        with LoopStall(port, pids) as stall:
            ...
        stall.worst_s

    On a busy machine a good part of the longest answer is time in which other programs had the
    processor. The kernel counts it for each thread (Linux: /proc/PID/task/TID/schedstat). What the
    probe waited, and the most that a thread of the service waited, are taken off each answer.

    Attributes:
        worst_s: Longest response time without the time of other programs; set when the block is
            left.
        worst_wall_s: Longest response time as observed by a client.
    """

    def __init__(self, port: int, pids: list[int]) -> None:
        """Create a probe without starting it.

        Args:
            port: Port of the service on 127.0.0.1.
            pids: IDs of its processes.
        """
        # Not a fork, which would copy the locks of this process's threads.
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_probe, args=(port, pids, theirs), daemon=True)
        self.worst_s = self.worst_wall_s = 0.0

    def __enter__(self) -> LoopStall:
        """Start the requests.

        Raises:
            RuntimeError: If the service does not respond the first time.
        """
        self._process.start()
        if not self._ours.poll(_START_S):
            raise RuntimeError("the service does not answer /healthz")
        self._ours.recv()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the requests."""
        self._ours.send(None)
        if self._ours.poll(2 * _PATIENCE_S):
            self.worst_s, self.worst_wall_s = cast(tuple[float, float], self._ours.recv())
        else:
            self.worst_s = self.worst_wall_s = float("inf")
        self._process.join(_PATIENCE_S)


def _probe(port: int, pids: list[int], told: Connection) -> None:
    _ask(port)  # with what this process has to import
    told.send(None)
    worst_s = worst_wall_s = 0.0
    while not told.poll():
        own, theirs = _waited_s(Path("/proc/self")), _waited_of(pids)
        started = time.perf_counter()
        _ask(port)
        wall_s = time.perf_counter() - started
        later = _waited_of(pids)
        waited_s = max((later[each] - theirs.get(each, 0.0) for each in later), default=0.0)
        waited_s += sum(_waited_s(Path("/proc/self")).values()) - sum(own.values())
        worst_s, worst_wall_s = max(worst_s, wall_s - waited_s), max(worst_wall_s, wall_s)
        time.sleep(_PAUSE_S)
    told.send((worst_s, worst_wall_s))


def _ask(port: int) -> None:
    """Send one request; the caller detects a service that has ended."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", "/healthz")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        time.sleep(_PAUSE_S)
    finally:
        connection.close()


def _waited_of(pids: list[int]) -> dict[str, float]:
    return {
        each: time_s for pid in pids for each, time_s in _waited_s(Path(f"/proc/{pid}")).items()
    }


def _waited_s(process: Path) -> dict[str, float]:
    """Return for each thread how long it was runnable while another program ran."""
    waited: dict[str, float] = {}
    for thread in process.glob("task/*"):
        try:
            waited[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # the thread ended; the kernel counts nothing
            continue
    return waited
