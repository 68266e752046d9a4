"""Answers of searches: their hits judged, looked up and explained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, islice
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.tables import StoredItem
from aladin_index.items.words import matches
from aladin_index.search.candidates import Found, Ranking, ValidSearch, sharing, unknown_fields
from aladin_index.search.collection import SearchBackend
from aladin_index.search.evidence import evidence_of_items
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.found_box import add_found
from aladin_index.search.negation import NEGATION_WORD, suggest_split
from aladin_index.search.parts import PartScores
from aladin_index.search.rerank import RankedPage, sort_hits
from aladin_index.search.results import (
    AnswerPart,
    Evidence,
    FieldWords,
    HitPart,
    HitStages,
    SearchAnswer,
    SearchHit,
    Stage,
    TookMs,
)
from aladin_network.calibration.calibration import Unreliable
from aladin_network.calibration.judging import CandidateScores

# Why an answer of a calibrated index has no probabilities.
Unjudged = Unreliable | Literal["several_parts", "box"]


class Times(NamedTuple):
    """End times of the steps of a batch of searches, by `time.monotonic`."""

    began_s: float
    retrieved_s: float
    ranked_s: float


class Verdict(NamedTuple):
    """The calibration's judgement of a page; without a calibration, hits have no probability.

    Attributes:
        kept: (kept,) int64, places of the hits that are likely enough.
        probabilities: Probability of each kept hit to belong to the query.
        no_match: Whether nothing matches, or no hit of the first page is likely enough; None
            without probabilities.
        reliable: Whether the calibration may judge this answer; None without a calibration.
        unreliable_because: Why it may not, or None.
        filter_ignored: Whether `min_probability` was not applied because the probabilities are
            not reliable.
    """

    kept: NDArray[np.int64]
    probabilities: list[float] | list[None]
    no_match: bool | None = None
    reliable: bool | None = None
    unreliable_because: Unjudged | None = None
    filter_ignored: bool = False


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


def judge(
    search: ValidSearch,
    found: Found,
    ranked: RankedPage,
    hit_words: NDArray[np.int64] | None = None,
) -> Verdict:
    """Estimate how likely the hits of a page are right.

    Args:
        search: The search.
        found: Result of the first stage, with the pool that hits are judged against.
        ranked: The page.
        hit_words: (hits,) `ValidSearch.word_counts` of the hits, or None to look them up.
    """
    calibration, pool, page = search.calibration, found.pool, ranked.ranking
    everything = Verdict(np.arange(len(page.rows)), [None] * len(page.rows))
    least = search.options.min_probability or 0.0
    because = _unreliable_because(search, found, ranked)
    if because is not None:
        return everything._replace(
            reliable=False, unreliable_because=because, filter_ignored=least > 0
        )
    if calibration is None or len(pool.rows) == 0:
        return everything
    words = search.word_counts(pool.rows)  # the query's, or for a photo those of the texts
    if hit_words is None:
        hit_words = search.word_counts(page.rows)
    judgement = calibration.of(search.direction).judge(
        CandidateScores(pool.rows, pool.match, ranked.pool_align, words),
        CandidateScores(page.rows, page.match, page.align, hit_words),
    )
    kept = np.flatnonzero(judgement.probabilities >= least)
    return Verdict(
        kept=kept,
        probabilities=judgement.probabilities[kept].tolist(),
        no_match=judgement.no_match or (search.options.offset == 0 and len(kept) == 0),
        reliable=True,
    )


def _unreliable_because(search: ValidSearch, found: Found, ranked: RankedPage) -> Unjudged | None:
    """Return why the calibration may not judge an answer, or None; also without a calibration."""
    if any(part.search.calibration for part in search.parts):
        return "several_parts"
    if search.calibration is None:
        return None
    if search.query.box is not None:
        return "box"
    # Without the second stage, the lengths of the texts found for an image are not known.
    is_uncounted = ranked.degraded == "rerank_unavailable" and search.modality == "image"
    is_aligned = ranked.pool_align is not None and ranked.ranking.align is not None
    because = search.calibration.unreliable_because(search.direction, aligned=is_aligned)
    if because is None and is_uncounted:
        because = "no_alignment"
    return None if because == "no_alignment" and len(found.pool.rows) == 0 else because


def present(index: SearchBackend, pages: Sequence[Page], times: Times) -> list[SearchAnswer]:
    """Look up and explain the hits of some pages, and make the answers.

    Args:
        index: The searched index.
        pages: Results of a batch of searches; hits of one collection are looked up together.
        times: When the stages ended.
    """
    answers: list[SearchAnswer | None] = [None] * len(pages)
    for group in sharing([page.search for page in pages]):
        rows = [pages[place].hits.rows.tolist() for place in group]
        found = iter(pages[group[0]].search.collection.items.by_rows(list(chain(*rows))))
        for place, of_page in zip(group, rows, strict=True):
            items = list(islice(found, len(of_page)))
            answers[place] = _answer(index, pages[place], items, times)
    return [answer for answer in answers if answer is not None]


def _answer(
    index: SearchBackend, page: Page, items: list[StoredItem], times: Times
) -> SearchAnswer:
    """Explain the hits, and make the answer."""
    search, found, ranked, verdict, ranking = page
    degraded = [] if ranked.degraded is None else [ranked.degraded]
    if verdict.filter_ignored:
        degraded.append("min_probability")
    words = search.words if search.options.lexical else None
    if search.options.lexical and words is None:
        degraded.append("lexical")
    evidence, looked_up_s = None, time.monotonic()
    if search.options.explain and search.is_crossing and not index.checkpoint.alignment_trained:
        degraded.append("explain")
    elif search.options.explain and search.is_crossing and ranking.align is not None:
        asked = index.checkpoint.model, search.query, search.modality, search.collection
        evidence = evidence_of_items(*asked, items)
        if evidence is None:
            degraded.append("evidence_unavailable")
    hits = _hits(search, ranking, verdict, items, evidence)
    # Between photos, only regions inside a box are aligned.
    has_none = search.is_crossing or ranking.align is None
    if not (has_none or add_found(index, search, items, hits)):
        degraded.append("evidence_unavailable")
    if words is not None:
        for hit, item in zip(hits, items, strict=True):
            found_in = matches(item, words.words)
            hit.stages.lexical = [FieldWords(field=f, words=w) for f, w in found_in]
    if search.parts and not _add_parts(index, search, ranked.parts, items, hits):
        degraded.append("evidence_unavailable")
    explain_s = time.monotonic() - looked_up_s
    typed = None if search.query.is_stored else search.query.text
    negated = None if typed is None else NEGATION_WORD.search(typed)
    answer = SearchAnswer(
        hits=hits,
        reranked=ranked.reranked,
        fusion=search.weight if ranked.reranked else None,
        candidates=found.candidates,
        generation=index.manifest.generation,
        degraded=degraded,
        no_match=verdict.no_match,
        probabilities_reliable=verdict.reliable,
        unreliable_because=verdict.unreliable_because,
        unknown_fields=unknown_fields(index, search) if found.is_empty else [],
        parts=_answer_parts(search) if search.parts else None,
        suggestion=None if negated is None else suggest_split(negated.string),
        took_ms=TookMs(
            decode=search.query.decode_ms,
            encode=search.query.encode_ms,
            retrieve=1000 * (times.retrieved_s - times.began_s),
            rerank=1000 * (times.ranked_s - times.retrieved_s + explain_s),
            total=1000 * (time.monotonic() - search.received_s),
        ),
    )
    return answer if search.options.sort is None else sort_hits(index, search, answer)


def _add_parts(
    index: SearchBackend,
    search: ValidSearch,
    parts: Sequence[PartScores],
    items: list[StoredItem],
    hits: list[SearchHit],
) -> bool:
    """Give hits the scores and the evidence of each part.

    Args:
        index: Searched index.
        search: Search with parts.
        parts: Scores of each part for the hits.
        items: Items of the hits.
        hits: Hits to complete.

    Returns:
        Whether there is all evidence that was asked for.
    """
    columns: list[list[HitPart]] = []
    is_whole = True
    for part, scores in zip(search.parts, parts, strict=True):
        evidence: list[list[Evidence]] | list[None] | None = [None] * len(items)
        is_aligned, is_crossing = scores.align is not None, part.search.is_crossing
        if search.options.explain and is_aligned and is_crossing:
            query, modality = part.search.query, part.search.modality
            model, collection = index.checkpoint.model, search.collection
            evidence = evidence_of_items(model, query, modality, collection, items)
        is_whole = is_whole and evidence is not None
        match = scores.match.tolist()
        align = [None] * len(items) if scores.align is None else scores.align.tolist()
        each = zip(
            scores.score.tolist(), match, align, evidence or [None] * len(items), strict=True
        )
        column = [HitPart(score=s, match=m, align=a, evidence=e) for s, m, a, e in each]
        if is_aligned and not is_crossing:
            is_whole = add_found(index, part.search, items, column) and is_whole
        columns.append(column)
    for hit, of_hit in zip(hits, zip(*columns, strict=True), strict=True):
        hit.parts = list(of_hit)
    return is_whole


def _answer_parts(search: ValidSearch) -> list[AnswerPart]:
    return [
        AnswerPart(
            role=part.role,
            weight=part.weight,
            text=part.search.query.text,
            id=part.search.query.own_id,
            box=part.search.query.box,
        )
        for part in search.parts
    ]


def _hits(
    search: ValidSearch,
    ranking: Ranking,
    verdict: Verdict,
    items: list[StoredItem],
    evidence: list[list[Evidence]] | None,
) -> list[SearchHit]:
    cosines, aligned, collection = ranking.match, ranking.align, search.collection
    if search.is_crossing and isinstance(collection, FileCollection) and collection.entry.corrected:
        # The order is that of the corrected scores; each stage shows what it compared.
        biases = collection.biases(search.tokens, search.modality, ranking.rows)
        cosines = cosines + search.embedding[-2] * biases[:, 0]
        aligned = None if aligned is None else aligned + biases[:, 1]
    # Arrays are converted as a whole: one by one, their elements take several times as long.
    firsts = zip(ranking.match_ranks.tolist(), cosines.tolist(), strict=True)
    match = [Stage(rank=rank, score=score) for rank, score in firsts]
    align: list[Stage] | list[None] = [None] * len(items)
    per_word: list[float] | list[None] = [None] * len(items)
    if aligned is not None and ranking.align_ranks is not None:
        seconds = zip(ranking.align_ranks.tolist(), aligned.tolist(), strict=True)
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
