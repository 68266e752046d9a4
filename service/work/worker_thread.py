"""A thread that does blocking work for an event loop, one piece at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar, cast

from aladin.errors import WorkerDiedError

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class _Task(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop

    def settle(self, result: object, error: Exception | None) -> None:
        """Tell the event loop, from the thread."""
        # The loop may be closed by now: then nobody waits.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(_settle, self.future, result, error)


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class WorkerThread:
    """Does what it is given, until it is closed or dies of what no work may raise."""

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: of the thread.
        """
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._dead = False
        # A daemon: work that hangs in native code must not keep the service from ending.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it takes work."""
        return not self._dead

    async def run(self, work: Callable[[], T]) -> T:
        """Have the thread do a piece of work; cancelling the wait does not stop it.

        Raises:
            WorkerDiedError: the thread died of it.
            Exception: whatever the work raises.
        """
        loop = asyncio.get_running_loop()
        task = _Task(work, loop.create_future(), loop)
        self._tasks.put(task)
        return cast(T, await task.future)

    def close(self) -> None:
        """Have the thread end after what it does now."""
        self._tasks.put(None)

    def _work(self) -> None:
        while not self._dead and (task := self._tasks.get()) is not None:
            self._do(task)
            # While the thread waits for the next one, nothing of this one stays in memory.
            del task

    def _do(self, task: _Task) -> None:
        try:
            task.settle(task.work(), None)
        except Exception as error:
            task.settle(None, error)
        except BaseException:
            # SystemExit and the like end a thread, wherever they come from.
            _LOG.exception("the thread %s ends", self._thread.name)
            self._dead = True
            task.settle(None, WorkerDiedError())
