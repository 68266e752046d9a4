"""The way of large requests into the queues: one place after the other, as places become free.

Several such requests take turns: each has the next place in its turn, whatever its length.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aladin_network.errors import EngineUnavailableError, IndexNotReadyError, OverloadedError
from aladin_service.http.shared_state import BatchRoom

T = TypeVar("T")

# How long a running request waits from one answer to the next while the queues are full of others'
# queries; then the rest of it is rejected.
_PATIENCE_S = 30.0
# Shortest and longest pause between two attempts to enter a full queue.
_LEAST_PAUSE_S = 0.005
_MOST_PAUSE_S = 0.25
# If no part of a request is answered for such a reason, the whole request is rejected: it may be
# sent again.
NOT_TAKEN = (OverloadedError, IndexNotReadyError, EngineUnavailableError)


class Turns:
    """Enters the parts of one request into the queues.

    Attributes:
        taken: Number of parts that a queue has or had.
    """

    def __init__(self, room: BatchRoom) -> None:
        self.taken = 0
        self._room = room
        self._gives_up_s = time.monotonic() + _PATIENCE_S  # put off by every answer

    async def enter(self, ask: Callable[[], Awaitable[T]], cost: int = 1) -> T:
        """Wait for the answer to one part; while the queues are full, try again and again.

        `cost` is the number of places that it takes, by how much work it is. Overload is
        raised only if nothing of the request was taken, or for too long.
        """
        async with self._room.places.take(cost):
            while True:
                self.taken += 1
                try:
                    answer = await ask()
                except NOT_TAKEN as error:
                    self.taken -= 1  # it was not
                    is_full = isinstance(error, OverloadedError)
                    if not (is_full and self.taken and time.monotonic() < self._gives_up_s):
                        raise
                    pause_s = min(max(error.retry_after_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)
                else:
                    self._gives_up_s = time.monotonic() + _PATIENCE_S
                    return answer
                await asyncio.sleep(pause_s)
