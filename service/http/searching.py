"""From a search request to its answer; the way of every route that searches."""

from __future__ import annotations

import asyncio
import time

from aladin.errors import OverloadedError
from service.http.errors import HUNG_UP, failure_of
from service.http.state import ServiceState
from service.queries import Query, SearchOptions, Target
from service.telemetry.request_record import current_request, note_search
from service.work.query_lines import lane_of
from service.work.search_job import Answered, SearchJob


async def run_search(
    service: ServiceState, query: Query, target: Target, options: SearchOptions
) -> Answered:
    """Have a worker answer one query, and count it; cancelling it withdraws the query.

    Raises:
        AladinError: as `Workers.search`.
    """
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
