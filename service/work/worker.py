"""Does jobs against the live index, blocking; the threads or processes that call it are others'."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from aladin.errors import AladinError
from index.devices.search_device import SearchDevice
from service.engine import SearchEngine
from service.item_changes import ItemChanger
from service.work.live_index import LiveIndex
from service.work.search_job import Answered, SearchJob

# Told what became of the query at a place of the batch, as soon as it is known.
Emit = Callable[[int, Answered | AladinError], None]


class Worker:
    """Answers batches of queries and does single jobs; safe to use from any number of threads."""

    def __init__(self, live: LiveIndex, device: SearchDevice) -> None:
        """Work on one index folder.

        Args:
            live: opened by the first job, or before.
            device: where it searches; closed with the worker.
        """
        self.live = live
        self._device = device

    def engine(self) -> SearchEngine:
        """Return what answers queries, of the generation that is live now.

        Raises:
            IndexNotReadyError: no index is live.
        """
        self._refresh()
        return self.live.engine()

    def changer(self) -> ItemChanger:
        """Return what adds and removes items, of the generation that is live now.

        Raises:
            IndexNotReadyError: no index is live.
        """
        self._refresh()
        return self.live.changer()

    def answer(self, jobs: Sequence[SearchJob], emit: Emit) -> None:
        """Answer queries that arrived together.

        Args:
            jobs: at least one.
            emit: called once for each of them; a fault of one query is its own alone.
        """
        engine = self.engine()
        for place, job in enumerate(jobs):
            try:
                answer = engine.search(job.query, job.target, job.options)
            except AladinError as error:
                emit(place, error)
                continue
            # Since the request came: waiting is part of it.
            total = 1000 * (time.monotonic() - job.received_s)
            took_ms = answer.took_ms.model_copy(update={"total": total})
            body = answer.model_copy(update={"took_ms": took_ms}).model_dump_json().encode()
            emit(place, Answered(body, answer.generation, tuple(answer.degraded), took_ms))

    def close(self) -> None:
        """Close the index; no job may run any more."""
        self.live.close()
        self._device.close()

    def _refresh(self) -> None:
        """Open what has been published since; jobs that come meanwhile wait for it.

        They would otherwise miss what was added to the new generation and acknowledged.
        """
        if not self.live.is_current:
            self.live.try_to_open()
