"""Takes work out of a line for one worker, one piece after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Slot(Generic[T]):
    """A place where a worker can do one piece of work at a time."""

    def __init__(
        self, take: Callable[[], Awaitable[T | None]], run: Callable[[T], Awaitable[None]]
    ) -> None:
        """Begin to take work.

        Args:
            take: waits for the next piece; None: there will be no more. To cancel it loses none.
            run: does it.
        """
        self._take = take
        self._run = run
        self._waits = False
        self._stopped = False
        self._task = asyncio.create_task(self._work())

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more and has done what it took."""
        return self._task.done()

    def stop(self) -> None:
        """Take no more work; what was taken is done."""
        self._stopped = True
        if self._waits:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until it takes no more and what it took is done."""
        await asyncio.gather(self._task, return_exceptions=True)

    async def abort(self) -> None:
        """End it, whatever it is at."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while not self._stopped:
            self._waits = True
            work = await self._take()
            self._waits = False
            if work is None:
                return
            await self._run(work)
            del work  # while it waits for the next one, nothing of this one stays in memory
