"""Runs the blocking work of queries beside the event loop, on a bounded number of threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

from aladin.errors import OverloadedError

P = ParamSpec("P")
T = TypeVar("T")

# Told to refused clients: a waiting line of queries of some tens of ms is worked off by then.
RETRY_AFTER_S = 1.0


class WorkerPool:
    """A thread pool whose waiting line has an end.

    Jobs know nothing of each other: one that raises reports to its own caller only.
    """

    def __init__(self, workers: int, max_waiting: int) -> None:
        """Start no thread yet; they come with the first jobs.

        Args:
            workers: jobs that run at the same time.
            max_waiting: jobs that may wait for a thread.
        """
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="query")
        self._max_jobs = workers + max_waiting
        self._jobs = 0

    def __enter__(self) -> WorkerPool:
        """Use the pool until the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drop the jobs that wait, finish those that run."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def run(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking job on a thread; call it from the event loop only.

        Raises:
            OverloadedError: too many jobs wait already.
        """
        if self._jobs >= self._max_jobs:
            raise OverloadedError(RETRY_AFTER_S)
        future = self._executor.submit(job, *args, **kwargs)
        self._jobs += 1
        loop = asyncio.get_running_loop()
        # A client that goes away cancels the wait, not the running job: its place stays taken.
        future.add_done_callback(lambda _: _call_if_open(loop, self._release))
        return await asyncio.wrap_future(future)

    def _release(self) -> None:
        self._jobs -= 1


def _call_if_open(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
