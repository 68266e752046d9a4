"""Scores of a query and given documents: items of the index, or encoded texts and photos.

A document is scored as a hit of a search is: by the fusion of both stages' scores if its modality
is not the query's, otherwise by the cosine of the embeddings; a probability compares it with the
first stage's best items of the index.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.tables import StoredItem
from aladin_index.search.candidates import find_candidates
from aladin_index.search.collection import Collection, SecondStageQuery
from aladin_index.search.judge import judge
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.order import RankedPage, Ranking
from aladin_index.search.query import Term
from aladin_index.search.searcher import SharedCollections, TwoStageSearcher
from aladin_index.tokens.maxsim import score_block
from aladin_index.tokens.store import TokenBlock
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import DIRECTION_OF, MODALITY_OF, TARGET_OF, TARGETS, Modality, Target

# What the relevance of a document is: a calibrated probability, the fusion of both stages' scores,
# or the cosine of the embeddings.
ScoredBy = Literal["probability", "fusion", "matching"]


class DocumentVectors(NamedTuple):
    """A document that is not an item of the index.

    Attributes:
        modality: Modality of the document.
        embedding: (d_match,) float32, L2-normalised.
        tokens: (tokens, d_align) float32, L2-normalised.
    """

    modality: Modality
    embedding: NDArray[np.float32]
    tokens: NDArray[np.float32]


class DocumentScore(NamedTuple):
    """The score of a document.

    Attributes:
        score: Score as of a hit: the fused score, or the cosine of the embeddings.
        relevance: Relevance in (0, 1): the probability if there is a reliable one, otherwise the
            score by the logistic function, or half of one plus the cosine.
        scored_by: What the relevance is.
        text: Text or caption of an item of the index; None if it has none, and for other documents.
    """

    score: float
    relevance: float
    scored_by: ScoredBy
    text: str | None = None


class _Group(NamedTuple):
    """The documents of one modality, items first.

    Attributes:
        target: Collection of this modality.
        collection: The collection, or None if the index does not have it.
        items: Documents that are items of the collection.
        given: All other documents.
    """

    target: Target
    collection: Collection | None
    items: list[StoredItem]
    given: list[DocumentVectors]

    @property
    def rows(self) -> NDArray[np.int64]:
        """(items,) Rows of the items."""
        return np.array([item.row for item in self.items], dtype=np.int64)


def score_documents(
    searcher: TwoStageSearcher, query: Term, documents: Sequence[str | DocumentVectors]
) -> list[DocumentScore | None]:
    """Score documents for a query.

    Args:
        searcher: Searcher of the index whose model encoded the query and the documents.
        query: Encoded query.
        documents: Ids of items, images before texts of the same id, and encoded documents.

    Returns:
        The score of each document, in their order, or None where the index has no such item.

    Raises:
        EngineUnavailableError: If the vector database that stores the index does not respond.
        InputError: If the vectors do not have the dimensions of the index.
    """
    # Rows of an item mean something to one snapshot of its collection only.
    collections: dict[Target, Collection] = {
        target: searcher.index.collection(target) for target in searcher.index.manifest.targets
    }
    found = _find_items(collections, [each for each in documents if isinstance(each, str)])
    scores: list[DocumentScore | None] = [None] * len(documents)
    places_of: dict[Target, list[int]] = {target: [] for target in TARGETS}
    for place, each in enumerate(documents):
        if not isinstance(each, str):
            places_of[TARGET_OF[each.modality]].append(place)
        elif each in found:
            places_of[found[each][0]].append(place)
    for target, places in places_of.items():
        if not places:
            continue
        # Items first, as in the arrays of scores.
        places.sort(key=lambda place: not isinstance(documents[place], str))
        own = [documents[place] for place in places]
        group = _Group(
            target,
            collections.get(target),
            [found[each][1] for each in own if isinstance(each, str)],
            [each for each in own if not isinstance(each, str)],
        )
        for place, score in zip(places, _score_group(searcher, query, group), strict=True):
            scores[place] = score
    return scores


def _find_items(
    collections: Mapping[Target, Collection], ids: Sequence[str]
) -> dict[str, tuple[Target, StoredItem]]:
    found: dict[str, tuple[Target, StoredItem]] = {}
    missing = list(dict.fromkeys(ids))
    for target in TARGETS:
        if target in collections and missing:
            items = collections[target].items.by_ids(missing)
            found.update((item.id, (target, item)) for item in items if item is not None)
            missing = [item_id for item_id in missing if item_id not in found]
    return found


def _score_group(searcher: TwoStageSearcher, query: Term, group: _Group) -> list[DocumentScore]:
    """Score the documents of one modality, items first."""
    manifest = searcher.index.manifest
    modality = query.modality
    is_crossing = modality != MODALITY_OF[group.target]
    embedding = query.encoding.embedding[0]
    match = _match(embedding, group)
    has_tokens = any(entry.token_count > 0 for entry in manifest.collections.values())
    if group.collection is not None:
        has_tokens = group.collection.has_tokens
    # As in a search: without training, the regions say nothing.
    is_aligned = has_tokens and searcher.index.checkpoint.alignment_trained
    if not (is_crossing and is_aligned):
        relevance = _inside((1 + match.astype(np.float64)) / 2)
        ranking = _ranking(group, match, match, None)
        return _scores(searcher, query, group, ranking, relevance, "matching")
    align = _align(SecondStageQuery(query.encoding.item_tokens(0), modality), match, group)
    fusion = searcher.index.checkpoint.fusion.of(DIRECTION_OF[modality])
    fused = fusion.combine(align, match)
    ranking = _ranking(group, fused, match, align)
    return _scores(searcher, query, group, ranking, _squashed(fused, fusion), "fusion")


def _match(embedding: NDArray[np.float32], group: _Group) -> NDArray[np.float32]:
    """Return the cosine of each document."""
    parts: list[NDArray[np.float32]] = []
    if group.items and group.collection is not None:
        parts.append(group.collection.embeddings(group.rows.tolist()))
    if group.given:
        parts.append(np.stack([each.embedding for each in group.given]))
    return np.concatenate(parts) @ embedding


def _align(
    stage: SecondStageQuery, match: NDArray[np.float32], group: _Group
) -> NDArray[np.float32]:
    """Return the alignment score of each document, whose cosines are known."""
    parts: list[NDArray[np.float32]] = []
    if group.items and group.collection is not None:
        aligned = group.collection.align(stage.tokens, stage.modality, group.rows)
        # A document is scored by itself, as a given one is: without a correction.
        raw = group.collection.raw_scores(stage, group.rows, match[: len(group.rows)], aligned)
        parts.append(aligned if raw.align is None else raw.align)
    if group.given:
        values = np.concatenate([each.tokens for each in group.given])
        lengths = np.array([len(each.tokens) for each in group.given], dtype=np.int64)
        parts.append(score_block(stage.tokens, stage.modality, TokenBlock(values, lengths)))
    return np.concatenate(parts)


def _ranking(
    group: _Group,
    scores: NDArray[np.float32],
    match: NDArray[np.float32],
    align: NDArray[np.float32] | None,
) -> Ranking:
    """Return the documents in their own order, as a page of hits; only items have real rows."""
    rows = np.concatenate([group.rows, -1 - np.arange(len(group.given), dtype=np.int64)])
    return Ranking(rows, scores, match, np.arange(1, len(rows) + 1), align)


def _scores(
    searcher: TwoStageSearcher,
    query: Term,
    group: _Group,
    ranking: Ranking,
    relevance: NDArray[np.float64],
    scored_by: ScoredBy,
) -> list[DocumentScore]:
    """Replace the relevance by probabilities if the calibration may judge this query."""
    probabilities = _probabilities(searcher, query, group, ranking)
    if probabilities is not None:
        relevance, scored_by = _inside(probabilities), "probability"
    texts = [*(item.text for item in group.items), *(None for _ in group.given)]
    return [
        DocumentScore(score, of, scored_by, text)
        for score, of, text in zip(ranking.scores.tolist(), relevance.tolist(), texts, strict=True)
    ]


def _probabilities(
    searcher: TwoStageSearcher, query: Term, group: _Group, ranking: Ranking
) -> NDArray[np.float64] | None:
    """Return the probability of each document, or None if there is no reliable one."""
    # Probabilities of corrected scores say nothing of others.
    if group.collection is None or searcher.index.manifest.correction is not None:
        return None
    # The same snapshot, so that an item of the pool and a document have the same row.
    shared: SharedCollections = {(group.target, None): group.collection}
    search = AskedSearch(query, group.target, SearchOptions(k=1))
    plan = searcher.plan(search, time.monotonic(), shared)
    if plan.calibration is None:
        return None
    [found] = find_candidates([plan])
    lead, pool_align = plan.terms[0], None
    if lead.aligns and len(found.pool.rows):
        pool_align = plan.collection.align(lead.stage.tokens, query.modality, found.pool.rows)
    words = np.full(len(ranking.rows), len(lead.stage.tokens), dtype=np.int64)
    if query.modality != "text":
        given = np.array([len(each.tokens) for each in group.given], dtype=np.int64)
        words = np.concatenate([plan.collection.lengths(group.rows), given])
    verdict = judge(plan, found.pool, RankedPage(ranking, pool_align=pool_align), words)
    return np.array(verdict.probabilities, dtype=np.float64) if verdict.reliable else None


def _squashed(fused: NDArray[np.float32], fusion: DirectionFusion) -> NDArray[np.float64]:
    """Map fused scores to (0, 1) by the logistic function, in the same order."""
    values = fused.astype(np.float64)
    if fusion.weight == 1:  # the sum of cosines itself, which would all be close to 1
        values = (values - fusion.align_mean) / fusion.align_std
    return _inside(0.5 * (1 + np.tanh(0.5 * values)))


def _inside(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keep values from becoming 0 or 1 by rounding."""
    return np.clip(values, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).epsneg)
