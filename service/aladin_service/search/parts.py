"""Encoding of queries of several parts, beside others of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from aladin_index.search.query import Query as EncodedQuery
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.photos.memory import WithdrawnError, is_still_wanted
from aladin_service.search.job import PartsQuery, PlainQuery, Query, QueryPart

Encoded = Term | EncodedQuery


class Encoder(Protocol):
    """What encodes queries of one part: a `QueryEncoder`."""

    def encode(
        self,
        searcher: TwoStageSearcher,
        queries: Sequence[PlainQuery],
        is_wanted: Callable[[int], bool] = ...,
        until_s: Sequence[float] = ...,
    ) -> list[Term | Exception | None]:
        """Encode queries, see `QueryEncoder`."""
        ...


def encode_with_parts(
    encoder: Encoder,
    searcher: TwoStageSearcher,
    queries: Sequence[Query],
    is_wanted: Callable[[int], bool],
    until_s: Sequence[float] = (),
) -> list[Encoded | Exception | None]:
    """Encode queries and parts of queries together; see `QueryEncoder.encode`."""
    plain: list[PlainQuery] = []
    owners: list[int] = []
    for place, query in enumerate(queries):
        of_query = (
            [part.query for part in query.parts] if isinstance(query, PartsQuery) else [query]
        )
        plain += of_query
        owners += [place] * len(of_query)
    of_parts = [until_s[owner] for owner in owners] if until_s else ()
    encoded = encoder.encode(searcher, plain, lambda place: is_wanted(owners[place]), of_parts)
    each = iter(encoded)
    return [
        _join(query.parts, [next(each) for _ in query.parts])
        if isinstance(query, PartsQuery)
        else next(each)
        for query in queries
    ]


def encode_any(encoder: Encoder, searcher: TwoStageSearcher, query: Query) -> Encoded:
    """Encode one query by itself, whatever its kind; see `QueryEncoder.encode_one`.

    Raises:
        AladinError: If the query or one of its parts cannot be encoded.
        WithdrawnError: If no client waits for the query any more.
    """
    is_wanted = is_still_wanted()
    (encoded,) = encode_with_parts(encoder, searcher, [query], lambda _: is_wanted())
    if isinstance(encoded, Exception):
        raise encoded
    if encoded is None:
        raise WithdrawnError
    return encoded


def _join(
    parts: Sequence[QueryPart], encoded: Sequence[Term | Exception | None]
) -> EncodedQuery | Exception | None:
    """Return the parts together, or why one of them is missing."""
    joined: list[Term] = []
    for part, each in zip(parts, encoded, strict=True):
        if each is None or isinstance(each, Exception):
            return each
        joined.append(each._replace(role=part.role, weight=part.weight))
    return tuple(joined)
