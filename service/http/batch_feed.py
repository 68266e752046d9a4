"""Feeds the queries of a batch request to the waiting lines, beside those that come alone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from pydantic import ConfigDict

from aladin.errors import (
    EngineUnavailableError,
    IndexNotReadyError,
    InputError,
    OverloadedError,
)
from service.http.errors import part_error
from service.http.requests import SearchBody
from service.http.searching import run_search
from service.http.state import ServiceState
from service.queries import Target
from service.telemetry.request_record import current_request
from service.work.search_job import Answered

_LOG = logging.getLogger(__name__)

# How long a batch that has begun waits from one answer to the next while the lines are full of
# others' queries; then what is left of it is refused.
_PATIENCE_S = 30.0
# The least and the most between two attempts to get into a full line.
_LEAST_PAUSE_S = 0.005
_MOST_PAUSE_S = 0.25
# Where none of a batch is answered for such a reason, all of it is refused: it may be sent again.
_NOT_TAKEN = (OverloadedError, IndexNotReadyError, EngineUnavailableError)


class BatchedSearch(SearchBody):
    """A search of a batch: its fields, and what to find."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"target": "images", "text": "two dogs in the snow"}]}
    )

    target: Target


# One of a batch, or why it is none.
BatchEntry = BatchedSearch | InputError


class BatchFeed:
    """One batch on its way: its queries take places in the lines as these come free.

    Several requests take turns: each has the next place in its turn, whatever its length.
    """

    def __init__(
        self, service: ServiceState, entries: Sequence[BatchEntry], request_id: str
    ) -> None:
        """Take nothing up yet.

        Args:
            service: answers.
            entries: of the request, at least one.
            request_id: told in the errors.
        """
        self._service = service
        self._entries = entries
        self._request_id = request_id
        self._next = iter(enumerate(entries))
        self._bodies: list[bytes] = [b""] * len(entries)
        self._taken = 0  # queries that a line has or had
        self._gives_up_s = time.monotonic() + _PATIENCE_S  # put off by every answer

    async def run(self) -> list[bytes]:
        """Answer all; cancelling it withdraws what waits.

        Returns:
            In their order, of each the answer as JSON, or a `BatchedError`.

        Raises:
            OverloadedError: not even the first could be taken, or too many batches are under way.
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer.
        """
        feeders = min(len(self._entries), self._service.settings.max_batch)
        with self._service.batch_room.request():
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(feeders):
                        group.create_task(self._feed())
            except ExceptionGroup as refusals:
                raise refusals.exceptions[0] from None
        return self._bodies

    async def _feed(self) -> None:
        for place, entry in self._next:
            try:
                if isinstance(entry, InputError):
                    raise entry
                self._bodies[place] = (await self._answer(entry)).body
                self._gives_up_s = time.monotonic() + _PATIENCE_S
            except _NOT_TAKEN as error:
                if not self._taken:
                    raise
                self._fail(place, error)
            except Exception as error:
                self._fail(place, error)

    async def _answer(self, search: BatchedSearch) -> Answered:
        query = await search.query(self._service.fetcher)
        async with self._service.batch_room.places:
            while True:
                self._taken += 1
                try:
                    return await run_search(self._service, query, search.target, search.options())
                except _NOT_TAKEN as error:
                    self._taken -= 1  # it was not
                    is_full = isinstance(error, OverloadedError)
                    if not (is_full and self._taken and time.monotonic() < self._gives_up_s):
                        raise
                    pause_s = min(max(error.retry_after_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)
                await asyncio.sleep(pause_s)

    def _fail(self, place: int, error: Exception) -> None:
        response = part_error(error, self._request_id)
        record = current_request()
        if record is not None:
            record.failed_parts += 1
        if response.status_code >= 500 and response.status_code != 503:
            _LOG.error("request %s, query %d failed", self._request_id, place, exc_info=error)
        status = f'{{"status":{response.status_code},'.encode()
        self._bodies[place] = status + bytes(response.body)[1:]
