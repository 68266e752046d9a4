"""One thread that alone uses something which no two threads may use at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class OwnerFailedError(RuntimeError):
    """The owner's thread has stopped, by `close` or by an error in what it was asked to do."""


class OwnerThread:
    """Runs what it is given, one after the other, in a thread of its own.

    An error ends it: what failed once on a card fails from then on, or worse, answers wrongly. All
    who wait then get the error, and all who come later too; nobody waits for ever.
    """

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: of the thread.
        """
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._stopped: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def post(self, task: Callable[[], T]) -> Future[T]:
        """Have the thread call `task`, without waiting.

        Returns:
            What `task` will have returned, or an `OwnerFailedError`.
        """
        future: Future[Any] = Future()
        with self._changed:
            if self._stopped is None:
                self._waiting.append((task, future))
                self._changed.notify()
            else:
                future.set_exception(_failed(self._stopped))
        return future

    def run(self, task: Callable[[], T]) -> T:
        """Have the thread call `task`, and wait for what it returns.

        Raises:
            OwnerFailedError: this task, or one before it, has failed, or the thread was closed.
        """
        return self.post(task).result()

    def close(self) -> None:
        """Stop after the task that is running; those that wait get an `OwnerFailedError`."""
        self._stop(OwnerFailedError("closed"))
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopped is not None)
                if self._stopped is not None:
                    return
                task, future = self._waiting.popleft()
            try:
                result = task()
            except BaseException as error:  # whatever it is, nobody may be left waiting
                self._stop(error)
                future.set_exception(_failed(error))
                return
            future.set_result(result)
            # What was searched for is not to be kept alive until the next task comes.
            del task, future, result

    def _stop(self, reason: BaseException) -> None:
        with self._changed:
            self._stopped = self._stopped or reason
            left, self._waiting = self._waiting, deque()
            self._changed.notify()
        for _, future in left:
            future.set_exception(_failed(reason))


def _failed(reason: BaseException) -> OwnerFailedError:
    error = OwnerFailedError(str(reason) or type(reason).__name__)
    error.__cause__ = reason
    return error
