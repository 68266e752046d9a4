"""Answers of searches: their hits looked up and explained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple

from aladin_index.items.tables import StoredItem
from aladin_index.search.backend import SearchBackend
from aladin_index.search.candidates import Found, Ranking, ValidSearch, sharing, unknown_fields
from aladin_index.search.evidence import evidence_of_items
from aladin_index.search.rerank import RankedPage, sort_hits
from aladin_index.search.results import Evidence, HitStages, SearchAnswer, SearchHit, Stage, TookMs
from aladin_index.search.verdict import Verdict


class Times(NamedTuple):
    """End times of the steps of a batch of searches, by `time.monotonic`."""

    began_s: float
    retrieved_s: float
    ranked_s: float


class Page(NamedTuple):
    """The result of a search.

    Attributes:
        search: The search.
        found: Result of the first stage.
        ranked: The page, whether or not its hits are likely enough.
        verdict: The calibration's judgement.
        hits: The hits that it keeps.
    """

    search: ValidSearch
    found: Found
    ranked: RankedPage
    verdict: Verdict
    hits: Ranking


def present(index: SearchBackend, pages: Sequence[Page], times: Times) -> list[SearchAnswer]:
    """Look up and explain the hits of some pages, and make the answers.

    Args:
        index: The searched index.
        pages: Results of a batch of searches.
        times: When the stages ended.
    """
    items = _look_up(pages)
    return [_answer(index, *each, times) for each in zip(pages, items, strict=True)]


def _look_up(pages: Sequence[Page]) -> list[list[StoredItem]]:
    """Return the items of each page's hits; those of one collection are looked up together."""
    items: list[list[StoredItem]] = [[] for _ in pages]
    for group in sharing([page.search for page in pages]):
        rows = [pages[place].hits.rows.tolist() for place in group]
        found = iter(pages[group[0]].search.collection.items.by_rows(list(chain(*rows))))
        for place, of_page in zip(group, rows, strict=True):
            items[place] = list(islice(found, len(of_page)))
    return items


def _answer(
    index: SearchBackend, page: Page, items: list[StoredItem], times: Times
) -> SearchAnswer:
    """Explain the hits, and make the answer."""
    search, found, ranked, verdict, ranking = page
    degraded = [] if ranked.degraded is None else [ranked.degraded]
    if verdict.filter_ignored:
        degraded.append("min_probability")
    evidence, looked_up_s = None, time.monotonic()
    if search.options.explain and search.is_crossing and not index.checkpoint.alignment_trained:
        degraded.append("explain")
    elif search.options.explain and ranking.align is not None:
        asked = index.checkpoint.model, search.query, search.modality, search.collection
        evidence = evidence_of_items(*asked, items)
        if evidence is None:
            degraded.append("evidence_unavailable")
    explain_s = time.monotonic() - looked_up_s
    answer = SearchAnswer(
        hits=_hits(search, ranking, verdict, items, evidence),
        reranked=ranked.reranked,
        fusion=search.weight if ranked.reranked else None,
        candidates=found.candidates,
        generation=index.manifest.generation,
        degraded=degraded,
        match_probability=verdict.match_probability,
        no_match=verdict.no_match,
        probabilities_reliable=verdict.reliable,
        unreliable_because=verdict.unreliable_because,
        unknown_fields=unknown_fields(index, search) if found.is_empty else [],
        took_ms=TookMs(
            decode=search.query.decode_ms,
            encode=search.query.encode_ms,
            retrieve=1000 * (times.retrieved_s - times.began_s),
            rerank=1000 * (times.ranked_s - times.retrieved_s + explain_s),
            total=1000 * (time.monotonic() - search.received_s),
        ),
    )
    return answer if search.options.sort is None else sort_hits(index, search, answer)


def _hits(
    search: ValidSearch,
    ranking: Ranking,
    verdict: Verdict,
    items: list[StoredItem],
    evidence: list[list[Evidence]] | None,
) -> list[SearchHit]:
    # Arrays are converted as a whole: one by one, their elements take several times as long.
    firsts = zip(ranking.match_ranks.tolist(), ranking.match.tolist(), strict=True)
    match = [Stage(rank=rank, score=score) for rank, score in firsts]
    align: list[Stage] | list[None] = [None] * len(items)
    per_word: list[float] | list[None] = [None] * len(items)
    if ranking.align is not None and ranking.align_ranks is not None:
        seconds = zip(ranking.align_ranks.tolist(), ranking.align.tolist(), strict=True)
        align = [Stage(rank=rank, score=score) for rank, score in seconds]
        words = search.word_counts(ranking.rows).tolist()
        per_word = [each.score / max(count, 1) for each, count in zip(align, words, strict=True)]
    places = zip(items, verdict.kept.tolist(), ranking.scores.tolist(), strict=True)
    return [
        SearchHit(
            id=item.id,
            rank=search.options.offset + kept + 1,
            score=score,
            per_word=per_word[place],
            probability=verdict.probabilities[place],
            stages=HitStages(match=match[place], align=align[place]),
            uri=item.uri,
            text=item.text,
            metadata=item.metadata,
            size_px=(item.width_px, item.height_px) if item.width_px and item.height_px else None,
            evidence=None if evidence is None else evidence[place],
        )
        for place, (item, kept, score) in enumerate(places)
    ]
