"""From a search request to its answer; the way of every route that searches."""

from __future__ import annotations

import asyncio
import time

from aladin.errors import OverloadedError, TextTooLongError
from index.items.filters import parse_filter
from service.http.errors import HUNG_UP, failure_of
from service.http.state import ServiceState
from service.queries import Query, SearchOptions, Target, TextQuery
from service.telemetry.request_record import current_request, note_search
from service.work.query_lines import lane_of
from service.work.search_job import Answered, SearchJob


async def run_search(
    service: ServiceState, query: Query, target: Target, options: SearchOptions
) -> Answered:
    """Have a worker answer one query, and count it; cancelling it withdraws the query.

    Raises:
        InputError: the text is too long, or the filter too large or none.
        AladinError: as `Workers.search`.
    """
    # Before it waits for a worker, and is sent to its process.
    most = service.settings.max_text_chars
    if isinstance(query, TextQuery) and len(query.text) > most:
        raise TextTooLongError(len(query.text), most, "characters")
    parse_filter(options.filter)
    job = SearchJob(query=query, target=target, options=options, received_s=time.monotonic())
    request = current_request()
    request_id = None if request is None else request.request_id
    try:
        answered = await service.workers.search(job)
    except OverloadedError:
        raise  # it was not taken, so nothing of it was slow
    except Exception as error:
        service.slow_queries.failed(job, failure_of(error).status, request_id)
        raise
    except asyncio.CancelledError:
        service.slow_queries.failed(job, HUNG_UP, request_id)
        raise
    service.slow_queries.answered(job, answered, request_id)
    lane = lane_of(query)
    service.metrics.answered(lane, answered)
    note_search(lane, job, answered)
    return answered
