"""The total score of candidates: the sum over a query's terms, and a bonus for rare words.

The score of a plain query is the fusion of both stages. Of joined terms, that of a term which is
aligned with items of the other modality is this fusion, too; of another, such as a photo where
photos are searched, the cosine (by a box the fusion), standardised over the candidates of a block.
A `not` term lowers a hit's score by how far the term's score exceeds (mean - 1 SD) of the
candidates: an item that lacks it gains nothing by lacking it clearly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.candidates import Candidates, sharing
from aladin_index.search.deadline import OutOfTimeError, RerankDeadline
from aladin_index.search.lexical import words_bonus
from aladin_index.search.plan import Plan
from aladin_index.search.terms import TermPlan
from aladin_index.tokens.bounds import score_best
from aladin_network.errors import EngineUnavailableError
from aladin_network.types import DIRECTION_OF, Modality

# Why the second stage is missing.
Degraded = Literal["rerank", "rerank_timeout", "rerank_unavailable"]


class TermScores(NamedTuple):
    """Scores of one of several terms for some items.

    Attributes:
        score: (items,) float32, what the term adds to the total.
        match: (items,) float32, cosines of the embeddings.
        align: (items,) float32, alignment scores, or None if the term was not aligned; both
            without the hub correction, which `score` contains.
    """

    score: NDArray[np.float32]
    match: NDArray[np.float32]
    align: NDArray[np.float32] | None

    def take(self, places: NDArray[np.int64]) -> TermScores:
        """Return the scores at some places."""
        align = None if self.align is None else self.align[places]
        return TermScores(self.score[places], self.match[places], align)


class Scored(NamedTuple):
    """Candidates with their totals.

    Attributes:
        places: (scored,) int64, places of the scored ones among the candidates, in the order of
            their cosines; None if all are scored.
        total: (scored,) float32, the scores that decide the order.
        align: (scored,) float32, alignment scores of a plain query, or None.
        pool_align: Alignment scores of the pool, or None if the second stage did not score it.
        degraded: Why the second stage is missing although it was asked for, or None.
        terms: Scores of each of joined terms.
    """

    places: NDArray[np.int64] | None
    total: NDArray[np.float32]
    align: NDArray[np.float32] | None = None
    pool_align: NDArray[np.float32] | None = None
    degraded: Degraded | None = None
    terms: Sequence[TermScores] = ()


def score_all(
    plans: Sequence[Plan], found: Sequence[Candidates], clock: RerankDeadline
) -> list[Scored]:
    """Score the candidates of searches.

    Those of searches that share a collection are aligned in one call, except where a deadline or
    bounds may leave some of them out.
    """
    known: dict[int, NDArray[np.float32]] = {}
    for group in sharing(plans):
        together: dict[Modality, list[int]] = {}
        for place in group:
            plan = plans[place]
            is_plain = plan.collection.is_shared and not plan.is_joined
            is_whole = plan.deadline_s is None and found[place].items.upper is None
            if plan.reranks and is_plain and is_whole:
                together.setdefault(plan.terms[0].stage.modality, []).append(place)
        for places in together.values():
            known.update(_align_together(plans, found, places, clock))
    return [
        _score(plan, of_plan, known.get(place), clock)
        for place, (plan, of_plan) in enumerate(zip(plans, found, strict=True))
    ]


def _align_together(
    plans: Sequence[Plan],
    found: Sequence[Candidates],
    places: Sequence[int],
    clock: RerankDeadline,
) -> dict[int, NDArray[np.float32]]:
    """Align the items of searches of one modality that share a collection, in one call."""
    began, plan = time.perf_counter(), plans[places[0]]
    rows = [found[place].aligned_rows for place in places]
    stages = [plans[place].terms[0].stage for place in places]
    tokens = [stage.tokens for stage in stages]
    aligned = plan.collection.align_all(tokens, stages[0].modality, rows)
    if count := sum(map(len, rows)):
        clock.observe(DIRECTION_OF[stages[0].modality], count, time.perf_counter() - began)
    return dict(zip(places, aligned, strict=True))


def _score(
    plan: Plan, found: Candidates, known: NDArray[np.float32] | None, clock: RerankDeadline
) -> Scored:
    """Score the candidates of one search, of which all may be aligned already."""
    degraded: Degraded | None = "rerank" if plan.lacks_tokens else None
    aligned: list[NDArray[np.float32] | None] = [None] * len(plan.terms)
    try:
        if found.items.upper is not None:
            return _score_best(plan, found, found.items.upper, clock)
        if known is not None:
            aligned = [known]
        elif plan.reranks:
            aligned = _align(plan, found.aligned_rows, clock)
    except OutOfTimeError:
        degraded = "rerank_timeout"
    except EngineUnavailableError:
        degraded = "rerank_unavailable"
    return _total(plan, found, aligned, degraded)


def _total(
    plan: Plan,
    found: Candidates,
    aligned: Sequence[NDArray[np.float32] | None],
    degraded: Degraded | None,
) -> Scored:
    """Add up what the terms, or both stages and the words of a plain query, give the candidates."""
    if plan.is_joined:
        terms = _score_terms(plan, found, aligned)
        total = np.stack([each.score for each in terms]).sum(axis=0)
        return Scored(None, total, degraded=degraded, terms=terms)
    align, pool_align, total = aligned[0], None, found.items.match
    if align is not None:
        count, pool = len(found.items.rows), found.pool
        pool_align = align[count:] if pool.places is None else align[pool.places]
        align = align[:count]
        total = plan.terms[0].fusion.combine(align, total, plan.terms[0].weight)
    if plan.words is not None:
        first = total if found.blocks is None else total[found.blocks == 0]
        total = total + words_bonus(first, found.items.rows, plan.words, plan.lexical)
    return Scored(None, total, align, pool_align, degraded)


def _align(
    plan: Plan, rows: NDArray[np.int64], clock: RerankDeadline
) -> list[NDArray[np.float32] | None]:
    """Align each term that can be with some items, if time allows."""
    stages = [each.stage if plan.options.rerank and each.aligns else None for each in plan.terms]
    able = [stage for stage in stages if stage is not None]
    if not able or (plan.is_joined and len(rows) == 0):
        return [None] * len(stages)

    def align(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        each = [plan.collection.align(stage.tokens, stage.modality, rows) for stage in able]
        return np.stack(each)

    began, count = time.perf_counter(), len(able) * len(rows)
    scores = iter(clock.guard(align, plan.direction, count, plan.deadline_s)(rows))
    if count:
        clock.observe(plan.direction, count, time.perf_counter() - began)
    return [None if stage is None else next(scores) for stage in stages]


def _score_best(
    plan: Plan, found: Candidates, upper: NDArray[np.float32], clock: RerankDeadline
) -> Scored:
    """Score the candidates of one block that can be on the page, by their bounds, and the pool."""
    term, pool, page = plan.terms[0], found.pool, found.page
    rows, match = found.items.rows, found.items.match
    known = np.full(len(rows), np.nan, dtype=np.float32)
    # How many of all items will be scored is not known: the deadline is checked between blocks.
    count = len(rows) + len(pool.rows) * (pool.places is None) if found.are_nearest else 0
    began = time.perf_counter()

    align_rows = partial(plan.collection.align, term.stage.tokens, term.stage.modality)
    guarded = clock.guard(align_rows, plan.direction, count, plan.deadline_s)

    def align(places: NDArray[np.int64]) -> NDArray[np.float32]:
        new = places[np.isnan(known[places])]
        if len(new):
            known[new] = guarded(rows[new])
        return known[places]

    fuse = partial(term.fusion.combine, weight=term.weight)
    # The weight is not negative: the fused score of a bound is a bound of the fused score. Without
    # weight, an infinite bound would not be a number.
    bounds = fuse(upper if term.weight > 0 else np.zeros_like(upper), match)
    best = score_best(bounds, lambda places: fuse(align(places), match[places]), page.stop)
    places = best.rows
    if found.are_nearest and len(places) and page.stop > page.start:
        # Ranks by alignment are those of the whole block: what can have a better one is scored.
        hits = places[np.lexsort((places, -best.keys))[page]]
        places = np.union1d(places, np.flatnonzero(upper >= align(hits).min()))
    else:
        places = places[np.lexsort((places, -match[places]))]
    scores = align(places)
    pool_align = align(pool.places) if pool.places is not None else guarded(pool.rows)
    if count:
        clock.observe(plan.direction, count, time.perf_counter() - began)
    return Scored(places, fuse(scores, match[places]), scores, pool_align)


def _score_terms(
    plan: Plan, found: Candidates, aligned: Sequence[NDArray[np.float32] | None]
) -> list[TermScores]:
    """Score the candidates by each of joined terms."""
    rows = found.items.rows
    embeddings = np.stack([each.embedding for each in plan.terms])
    match = plan.collection.match(embeddings, [each.hubs for each in plan.terms], rows)
    # Liked items that have moved words count by them alone.
    has_moved = any(
        each.is_moved and align is not None for each, align in zip(plan.terms, aligned, strict=True)
    )
    borders = [] if found.blocks is None else np.flatnonzero(np.diff(found.blocks)) + 1
    blocks = np.split(np.arange(len(rows)), borders) if len(rows) else []
    terms: list[TermScores] = []
    for term, of_match, align in zip(plan.terms, match, aligned, strict=True):
        score = np.zeros(len(rows), dtype=np.float32)
        for block in () if has_moved and term.term.role == "like" else blocks:
            of_block = None if align is None else align[block]
            score[block] = term.factor * _in_block(term, plan, of_match[block], of_block)
        raw = plan.collection.raw_scores(term.stage, rows, of_match, align, term.hubs)
        terms.append(TermScores(score, raw.match, raw.align))
    return terms


def _in_block(
    term: TermPlan, plan: Plan, match: NDArray[np.float32], align: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Return a term's scores of one block of candidates before they are weighted."""
    fusion, score = term.fusion, match
    if align is not None and term.is_moved and plan.options.fusion is None:
        score = (align - fusion.align_mean) / fusion.align_std
    elif align is not None:
        score = fusion.combine(align, match, term.weight)
    if align is None or not term.crosses:  # scores without fitted constants
        score = (score - score.mean()) / (score.std() or 1)
    if term.term.role != "not":
        return score
    return np.maximum(score - (score.mean() - score.std()), 0)
