"""From a search request to its answer; the way of every route that searches."""

from __future__ import annotations

import time

from service.http.state import ServiceState
from service.queries import Query, SearchOptions, Target
from service.telemetry.request_record import note_search
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
    answered = await service.workers.search(job)
    lane = lane_of(query)
    service.metrics.answered(lane, answered)
    note_search(lane, job, answered)
    return answered
