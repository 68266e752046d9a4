"""Encoding of queries of an index that is being upgraded: by the new model and by the old one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aladin_index.search.backend import EncodedQuery
from aladin_index.upgrade.searcher import UpgradingSearcher
from aladin_service.search.job import PhotoQuery, PlainQuery, SearchJob, TextQuery
from aladin_service.search.parts import Encoded, Encoder, encode_with_parts


def encode_for_both(
    encoder: Encoder,
    searcher: UpgradingSearcher,
    jobs: Sequence[SearchJob],
    is_wanted: Callable[[int], bool],
    until_s: Sequence[float],
) -> list[Encoded | Exception | None]:
    """Encode queries for the models that are to answer them; see `QueryEncoder.encode`.

    Texts and photos are encoded by the new model and, unless there is a bridge, by the old one. All
    other queries are encoded by the old model alone, and so is a text or a photo that the new one
    cannot encode: it was not refused before the upgrade, and is not now.

    Args:
        encoder: Encodes the queries.
        searcher: Searcher of the index.
        jobs: Searches, at least one.
        is_wanted: Tells whether the search at a place is still awaited.
        until_s: Deadline of each search.

    Returns:
        By place the encoded query, or why there is none. `EncodedQuery.by_new` is set where the new
        model answers, too.
    """
    asked: dict[int, PlainQuery] = {}
    for place, job in enumerate(jobs):
        query = job.query
        is_plain = isinstance(query, TextQuery | PhotoQuery)
        if is_plain and searcher.asks_both(job.target, job.options):
            asked[place] = query
    by_new: dict[int, EncodedQuery] = {}
    found: dict[int, Encoded | Exception | None] = {}
    if asked:
        places = [*asked]
        deadlines = [until_s[place] for place in places]
        wanted = _at(places, is_wanted)
        encoded = encoder.encode(searcher.successor, [*asked.values()], wanted, deadlines)
        for place, each in zip(places, encoded, strict=True):
            if isinstance(each, EncodedQuery):
                by_new[place] = each
                over_bridge = searcher.over_bridge(jobs[place].target, each)
                if over_bridge is not None:
                    found[place] = over_bridge._replace(by_new=each)
    rest = [place for place in range(len(jobs)) if place not in found]
    if rest:
        queries = [jobs[place].query for place in rest]
        deadlines = [until_s[place] for place in rest]
        by_old = encode_with_parts(encoder, searcher, queries, _at(rest, is_wanted), deadlines)
        for place, each in zip(rest, by_old, strict=True):
            if isinstance(each, EncodedQuery) and place in by_new:
                each = each._replace(
                    by_new=by_new[place], encode_ms=each.encode_ms + by_new[place].encode_ms
                )
            found[place] = each
    return [found[place] for place in range(len(jobs))]


def _at(places: Sequence[int], is_wanted: Callable[[int], bool]) -> Callable[[int], bool]:
    return lambda number: is_wanted(places[number])
