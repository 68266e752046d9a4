"""How much of the service batch requests may take up, all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from aladin.errors import OverloadedError

# Requests that may be under way: each holds its queries in memory, photos too, until it is done.
_MAX_REQUESTS = 16
_RETRY_AFTER_S = 1.0


class BatchRoom:
    """Places in the waiting lines for queries of batch requests."""

    def __init__(self, places: int) -> None:
        """Have all places free.

        Args:
            places: as many as are encoded together, so that a worker that is free finds a whole
                batch, and a query that comes alone still finds the lines short.
        """
        self.places = asyncio.Semaphore(places)
        self._requests = 0

    @contextmanager
    def request(self) -> Generator[None]:
        """Hold the room of one request.

        Raises:
            OverloadedError: too many are under way.
        """
        if self._requests >= _MAX_REQUESTS:
            raise OverloadedError(_RETRY_AFTER_S)
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
