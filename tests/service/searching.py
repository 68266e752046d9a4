"""Searches for queries that are not encoded yet."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import Target
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import Query, SearchJob, TextQuery
from aladin_service.settings import QueryLimits


def search_for(
    searcher: TwoStageSearcher, query: Query, target: Target, options: SearchOptions
) -> SearchAnswer:
    """Encode a query by itself, and search with it."""
    with closing(QueryEncoder(QueryLimits())) as encoder:
        return searcher.search(encoder.encode_one(searcher, query), target, options)


def search_job(
    query: Query | str = "a dog", target: Target = "images", **options: Any
) -> SearchJob:
    """Make a search that comes now, of a text or another query."""
    return SearchJob(
        query=TextQuery(query) if isinstance(query, str) else query,
        target=target,
        options=SearchOptions(**options),
        received_s=time.monotonic(),
    )
