"""Answers of searches: their hits looked up and explained, and notes on what is missing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from aladin_index.facts import FieldCount
from aladin_index.items.field_tables import MAX_VALUES
from aladin_index.items.filters import (
    Exists,
    Filter,
    Kind,
    Scalar,
    field_scalars,
    leaves,
    parse_filter,
    without_field,
)
from aladin_index.items.tables import StoredItem
from aladin_index.items.words import matches
from aladin_index.search.candidates import Candidates, sharing
from aladin_index.search.collection import Collection, SearchBackend
from aladin_index.search.evidence import compare_with_items, word_evidence
from aladin_index.search.found_box import find_in_items
from aladin_index.search.judge import Verdict
from aladin_index.search.negation import NEGATION_WORD, suggest_split
from aladin_index.search.order import RankedPage
from aladin_index.search.plan import Plan
from aladin_index.search.results import (
    AnswerTerm,
    FieldFacet,
    FieldWords,
    HitStages,
    HitTerm,
    SearchAnswer,
    SearchHit,
    Stack,
    Stage,
    TookMs,
)
from aladin_index.search.terms import TermPlan
from aladin_network.errors import AladinError, EngineUnavailableError

# Each field costs a search, so only the first fields of a long filter are looked up.
_MAX_FIELDS = 5
# Values of different kinds are never compared: numbers come first.
_KINDS: tuple[Kind, ...] = ("number", "text", "bool")


class Times(NamedTuple):
    """End times of the steps of a batch of searches, by `time.monotonic`."""

    began_s: float
    retrieved_s: float
    ranked_s: float


class Page(NamedTuple):
    """The result of a search.

    Attributes:
        plan: The search.
        found: Its candidates.
        ranked: The hits that the verdict keeps.
        verdict: The calibration's judgement.
    """

    plan: Plan
    found: Candidates
    ranked: RankedPage
    verdict: Verdict


def answer_all(index: SearchBackend, pages: Sequence[Page], times: Times) -> list[SearchAnswer]:
    """Look up and explain the hits of some pages, and make the answers."""
    answers: dict[int, SearchAnswer] = {}
    for group in sharing([page.plan for page in pages]):
        rows = [pages[place].ranked.ranking.rows.tolist() for place in group]
        found = iter(pages[group[0]].plan.collection.items.by_rows(list(chain(*rows))))
        for place, of_page in zip(group, rows, strict=True):
            items = list(islice(found, len(of_page)))
            answers[place] = _answer(index, pages[place], items, times)
    return [answers[place] for place in range(len(pages))]


def _answer(
    index: SearchBackend, page: Page, items: list[StoredItem], times: Times
) -> SearchAnswer:
    plan, found, ranked, verdict = page
    looked_up_s = time.monotonic()
    hits = _hits(page, items)
    if ranked.tiles.members:
        _stack_hits(page, hits)
    is_whole = _explain_hits(index, page, items, hits)
    explain_s = time.monotonic() - looked_up_s
    sort, terms = plan.options.sort, [each.term for each in plan.terms]
    lead = terms[0]
    text = "" if lead.is_stored or plan.is_joined else lead.text or ""
    return SearchAnswer(
        hits=hits if sort is None else in_order(hits, sort),
        reranked=ranked.reranked,
        fusion=plan.terms[0].weight if ranked.reranked else None,
        lexical=plan.lexical,
        candidates=found.items.candidates,
        generation=index.manifest.generation,
        degraded=_notes(index, page, is_whole=is_whole),
        no_match=verdict.no_match,
        probabilities_reliable=verdict.reliable,
        unreliable_because=verdict.unreliable_because,
        unknown_fields=_unknown_fields(index, page, hits) if sort or found.is_empty else [],
        terms=_answer_terms(plan) if plan.is_joined else None,
        warnings=[] if text.isascii() or _knows(index, text) else ["language"],
        facets=_count_facets(index, plan) if plan.options.facets else None,
        suggestion=suggest_split(text) if NEGATION_WORD.search(text) else None,
        took_ms=TookMs(
            decode=sum([term.decode_ms for term in terms]),
            encode=max([term.encode_ms for term in terms]),
            retrieve=1000 * (times.retrieved_s - times.began_s),
            rerank=1000 * (times.ranked_s - times.retrieved_s + explain_s),
            total=1000 * (time.monotonic() - plan.received_s),
        ),
    )


def _knows(index: SearchBackend, text: str) -> bool:
    return index.checkpoint.model.text.encoder.knows_letters(text)


def _hits(page: Page, items: Sequence[StoredItem]) -> list[SearchHit]:
    plan, _, ranked, verdict = page
    ranking, lead = ranked.ranking, plan.terms[0]
    # The order is that of the corrected scores; each stage shows what it compared.
    raw = plan.collection.raw_scores(
        lead.stage, ranking.rows, ranking.match, ranking.align, plan.first.hubs
    )
    # Arrays are converted as a whole: one by one, their elements take several times as long.
    firsts = zip(ranking.match_ranks.tolist(), raw.match.tolist(), strict=True)
    match = [Stage(rank=rank, score=score) for rank, score in firsts]
    align: list[Stage] | list[None] = [None] * len(items)
    per_word: list[float] | list[None] = [None] * len(items)
    if raw.align is not None and ranking.align_ranks is not None:
        seconds = zip(ranking.align_ranks.tolist(), raw.align.tolist(), strict=True)
        align = [Stage(rank=rank, score=score) for rank, score in seconds]
        words = plan.word_counts(ranking.rows).tolist()
        per_word = [each.score / max(count, 1) for each, count in zip(align, words, strict=True)]
    places = zip(items, verdict.kept.tolist(), ranking.scores.tolist(), strict=True)
    return [
        SearchHit(
            id=item.id,
            rank=plan.options.offset + kept + 1,
            score=score,
            per_word=per_word[place],
            probability=verdict.probabilities[place],
            stages=HitStages(match=match[place], align=align[place]),
            uri=item.uri,
            text=item.text,
            metadata=item.metadata,
            size_px=(item.width_px, item.height_px) if item.width_px and item.height_px else None,
            evidence=None,
        )
        for place, (item, kept, score) in enumerate(places)
    ]


def _stack_hits(page: Page, hits: Sequence[SearchHit]) -> None:
    """Name the photos that hits stand for."""
    members = page.ranked.tiles.members
    stacked = [
        (hit, members[row])
        for hit, row in zip(hits, page.ranked.ranking.rows.tolist(), strict=True)
        if row in members
    ]
    rows = [row for _, of_hit in stacked for row in of_hit]
    ids = iter([item.id for item in page.plan.collection.items.by_rows(rows)])
    for hit, of_hit in stacked:
        hit.stack = Stack(count=len(of_hit), ids=[*islice(ids, len(of_hit))])


def _explain_hits(
    index: SearchBackend, page: Page, items: Sequence[StoredItem], hits: Sequence[SearchHit]
) -> bool:
    """Give hits their words, the scores of joined terms and the evidence, and return if all is."""
    plan, _, ranked, _ = page
    if plan.words is not None:
        for hit, item in zip(hits, items, strict=True):
            found_in = matches(item, plan.words.words, plan.words.name)
            hit.stages.lexical = [FieldWords(field=f, words=w) for f, w in found_in]
    if not plan.is_joined:
        term, is_aligned = plan.terms[0], ranked.ranking.align is not None
        is_shown = is_aligned and (plan.options.explain or not term.crosses)
        return not is_shown or _explain(index, plan, term, items, hits)
    is_whole, columns = True, list[list[HitTerm]]()
    for term, scores in zip(plan.terms, ranked.terms, strict=True):
        match, align = scores.match.tolist(), [None] * len(items)
        if scores.align is not None:
            align = scores.align.tolist()
        each = zip(scores.score.tolist(), match, align, strict=True)
        column = [HitTerm(score=s, match=m, align=a, evidence=None) for s, m, a in each]
        if scores.align is not None:
            is_whole = _explain(index, plan, term, items, column) and is_whole
        columns.append(column)
    for hit, of_hit in zip(hits, zip(*columns, strict=True), strict=True):
        hit.terms = list(of_hit)
    return is_whole


def _explain(
    index: SearchBackend,
    plan: Plan,
    term: TermPlan,
    items: Sequence[StoredItem],
    hits: Sequence[SearchHit] | Sequence[HitTerm],
) -> bool:
    """Give hits, or what a term adds to each, its evidence; return whether it was available."""
    model, explains = index.checkpoint.model, plan.options.explain
    try:
        if not term.crosses:  # between photos, only regions inside a box are aligned
            found = find_in_items(model, term.term, plan.collection, items)
            for hit, part in zip(hits, found, strict=True):
                hit.found = part.found
                hit.region_evidence = part.evidence(term.term) if explains else None
        elif explains and index.checkpoint.alignment_trained:
            compared = compare_with_items(model, term.term, plan.collection, items)
            for hit, pair in zip(hits, compared, strict=True):
                hit.evidence = word_evidence(pair)
    except EngineUnavailableError:
        return False
    return True


def _answer_terms(plan: Plan) -> list[AnswerTerm]:
    return [
        AnswerTerm(
            role=each.term.role or "all",
            weight=each.factor,
            text=each.term.text,
            id=each.term.own_id,
            box=each.term.box,
        )
        for each in plan.terms
    ]


def _unknown_fields(index: SearchBackend, page: Page, hits: Sequence[SearchHit]) -> list[str]:
    """Return the fields of the filter, if no item passed it, and of `sort` that no item has."""
    options, names = page.plan.options, list[str]()
    field = options.sort_field
    if field and not any(any(field_scalars(hit.metadata.get(field))) for hit in hits):
        names.append(field)
    passing = parse_filter(options.filter) if page.found.is_empty else None
    if passing is not None:
        tests = (test.field for test in leaves(passing))
        names += list(dict.fromkeys(tests))[:_MAX_FIELDS]
    unknown: list[str] = []
    with suppress(AladinError):  # the search is answered even if an engine rejects this
        for name in names:
            collection = index.collection(page.plan.collection.target, Exists(name))
            if len(collection.order(page.plan.nearest(1)._replace(second_stage=None)).rows) == 0:
                unknown.append(name)
    return unknown


def in_order(hits: Sequence[SearchHit], sort: str) -> list[SearchHit]:
    """Order hits by a field, falling with a minus before it; hits without a value come last."""
    field, is_falling = sort.removeprefix("-"), sort.startswith("-")
    first = max if is_falling else min
    keyed: list[tuple[tuple[int, int | float | str], SearchHit]] = []
    without: list[SearchHit] = []
    for hit in hits:
        scalars = field_scalars(hit.metadata.get(field))
        keys = [(_KINDS.index(kind), value) for kind, value in scalars]
        if keys:
            keyed.append((first(keys), hit))
        else:
            without.append(hit)
    keyed.sort(key=lambda pair: pair[0], reverse=is_falling)
    return [hit for _, hit in keyed] + without


def _notes(index: SearchBackend, page: Page, *, is_whole: bool) -> list[str]:
    """Return what `degraded` says: what was requested and left out."""
    plan, options = page.plan, page.plan.options
    explains = options.explain and any(term.crosses for term in plan.terms)
    notes = {
        page.ranked.degraded or "": page.ranked.degraded is not None,
        "min_probability": page.verdict.filter_ignored,
        "lexical": bool(options.lexical) and plan.words is None,
        "stack": options.stack and plan.stacks is None,
        "explain": explains and not index.checkpoint.alignment_trained,
        "evidence_unavailable": not is_whole,
    }
    return [note for note, holds in notes.items() if holds]


# --- Values among the nearest items ---


def _count_facets(index: SearchBackend, plan: Plan) -> dict[str, FieldFacet]:
    """Count the values of the fields that a search asks for.

    A search leaves nothing out: what is counted are as many of the nearest items as the second
    stage would re-rank, whatever page is asked for, and those that have rare words of the query. A
    field is counted without the filter's conditions on itself: what there is to choose beside them.
    """
    options = plan.options
    given = parse_filter(options.filter)
    found: dict[Filter | None, list[StoredItem]] = {}
    facets: dict[str, FieldFacet] = {}
    for field in options.facets:
        others = without_field(given, field)
        if others not in found:
            same, target = others == given, plan.collection.target
            found[others] = _nearest(
                plan, plan.collection if same else index.collection(target, others)
            )
        facets[field] = _facet(found[others], field)
    return facets


def _nearest(plan: Plan, collection: Collection) -> list[StoredItem]:
    """Look up the nearest items of a collection, and those with rare words of the query."""
    query = plan.nearest(plan.first.candidates + len(plan.own_rows))
    rows = collection.order(query._replace(second_stage=None)).rows
    own = {each.term.own_id for each in plan.terms}
    if plan.words is not None:
        words = collection.find_words(plan.terms[0].term.text or "")
        rows = rows if words is None else np.union1d(rows, words.rows)
    found = [item for item in collection.items.by_rows(rows.tolist()) if item.id not in own]
    return found if plan.words is not None else found[: plan.first.candidates]


def _facet(items: Sequence[StoredItem], field: str) -> FieldFacet:
    counts: Counter[Scalar] = Counter()
    for item in items:
        counts.update(set(field_scalars(item.metadata.get(field))))
    values = [
        FieldCount(value=bool(value) if kind == "bool" else value, count=count)
        for (kind, value), count in counts.most_common(MAX_VALUES)
    ]
    return FieldFacet(among=len(items), values=values)
