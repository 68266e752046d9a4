"""A search for a query that is not encoded yet."""

from __future__ import annotations

from contextlib import closing

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import Target
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import Query
from aladin_service.settings import QueryLimits


def search_for(
    searcher: TwoStageSearcher, query: Query, target: Target, options: SearchOptions
) -> SearchAnswer:
    """Encode a query by itself, and search with it."""
    with closing(QueryEncoder(QueryLimits())) as encoder:
        return searcher.search(encoder.encode_one(searcher, query), target, options)
