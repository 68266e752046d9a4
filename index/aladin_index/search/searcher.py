"""Two-stage search: candidates by their embeddings, re-ranked by words and regions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.items.filters import parse_filter
from aladin_index.items.tables import StoredItem
from aladin_index.search.backend import Collection, SearchBackend, SecondStageQuery
from aladin_index.search.evidence import evidence_of_items
from aladin_index.search.probability import Verdict, find_pool, judge_page
from aladin_index.search.ranking import Ranking, rank_by_match
from aladin_index.search.rerank import Found, RankedPage, RerankDeadline, Reranker
from aladin_index.search.results import (
    Hit,
    SearchResult,
    StageResult,
    Stages,
    StageTimes,
    WordEvidence,
)
from aladin_index.search.retrieval import find_unknown_fields, order_without
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import EngineUnavailableError, InputError, ShapeError, UnknownItemError
from aladin_network.scoring.scores import Encoding
from aladin_network.types import DIRECTION_OF, MODALITY_OF, TARGETS, Modality, Target


class TwoStageSearcher:
    """Answers queries from one open generation; safe to use from any number of threads.

    Between a text and images, and between an image and texts, the first stage finds candidates
    by the embeddings, and the second orders them by the fusion of both stages' scores. Two
    items of one modality have no words and regions to align: there the embeddings decide alone.

    Where the index is calibrated, hits have probabilities. They are made of both stages' scores,
    compared with those of the first stage's best (`Calibration.pool`; with a filter,
    the best that pass it), and so are the same whatever the order, the page and the number of
    candidates are.
    """

    def __init__(self, index: SearchBackend) -> None:
        """Search `index`, which has to stay open."""
        self.index = index
        self._deadline = RerankDeadline()

    def search(
        self,
        query: Encoding,
        modality: Modality,
        target: Target,
        *,
        top_k: int,
        offset: int = 0,
        num_candidates: int | None = None,
        rerank: bool = True,
        fusion: float | None = None,
        filter: Mapping[str, Any] | None = None,
        explain: bool = False,
        query_text: str | None = None,
        query_size_px: tuple[int, int] | None = None,
        query_boxes: NDArray[np.float32] | None = None,
        min_probability: float | None = None,
        deadline_s: float | None = None,
        own_id: str | None = None,
    ) -> SearchResult:
        """Find the best items for a query.

        Beyond the first `num_candidates` the next so many are ranked among themselves, and so
        on; so the order is the same whatever the size of a page.

        Args:
            query: one encoded item.
            modality: of the query.
            target: which side to search.
            top_k: hits wanted; more than the index has are not an error.
            offset: hits to skip.
            num_candidates: handed to the second stage at a time; None: the index's default.
            rerank: False leaves the order to the first stage.
            fusion: weight of the alignment score, 0 to 1; None: the one chosen on validation.
            filter: metadata that hits must have, see `aladin_index.items.filters`.
            explain: add each word's best region to the hits.
            query_text: the query's text; explaining a text query needs it.
            query_size_px: width and height of the query's photo; boxes in it need them.
            query_boxes: (regions, 4) of a photo query that brought its own regions, in fractions
                of the photo.
            min_probability: leaves hits out that are less likely to belong to the query; `top_k`
                and `offset` count before that. None leaves none out, and neither does a value
                where the probabilities are not reliable; the result's `degraded` then names it.
            deadline_s: by `time.monotonic`; where the second stage would end after it, the order
                is left to the first. None: it may take as long as it takes.
            own_id: Id of the query, if it is an item of the index. It is not found among the
                items of its own modality.

        Raises:
            NoSuchTargetError: the index has no such side.
            InputError: an option is out of its range, the filter has another form, or
                `min_probability` is given where hits have no probability.
            ShapeError: the query is not one item of the index's dimensions.
            EngineUnavailableError: the first stage does not answer; where only the second does
                not, the order is left to the first.
        """
        started = time.perf_counter()
        if num_candidates is None:
            num_candidates = self.index.manifest.candidates(target)
        _check_options(top_k, offset, num_candidates, fusion, min_probability)
        parsed_filter = parse_filter(filter or {})
        side = self.index.side(target, parsed_filter)
        _check_query(query, side)
        crossing = modality != MODALITY_OF[target]
        if explain and crossing and modality == "text" and query_text is None:
            raise InputError("explain: expected the query's text, got none")
        calibration = self._calibration(crossing, min_probability)
        aligned = crossing and side.has_tokens
        reranked = rerank and aligned
        embedding = query.embedding[0].detach().float().cpu().numpy()
        tokens = query.item_tokens(0).detach().float().cpu()
        second_stage = SecondStageQuery(tokens, modality) if aligned else None
        last = offset + top_k
        stop = _up_to_whole(last, num_candidates) if reranked else last
        # A page of few hits, or a late one, is judged against the first candidates all the same.
        pool_size = 0 if calibration is None else calibration.pool
        wanted = max(stop, min(pool_size, num_candidates))
        hidden_id = None if crossing else own_id
        ordered = order_without(
            hidden_id, side, embedding, wanted, num_candidates, second_stage=second_stage
        )
        # The items may end before the page does, and before it begins.
        first, last, stop = (min(place, len(ordered.rows)) for place in (offset, last, stop))
        start = first
        if first == last:
            stop = first
        elif reranked:
            start = first // num_candidates * num_candidates
        pool = find_pool(
            side,
            embedding,
            second_stage,
            ordered,
            num_candidates,
            size=pool_size,
            ranks_head=reranked and start == 0 < stop,
        )
        found = Found(ordered.rows[start:stop], ordered.match[start:stop], start, pool)
        retrieved = time.perf_counter()

        direction = DIRECTION_OF[modality]
        constants = self.index.checkpoint.fusion.of(direction)
        reranker = Reranker(
            align=partial(side.align, tokens, modality),
            direction=direction,
            fusion=constants,
            weight=constants.weight if fusion is None else float(fusion),
            block=ordered.candidates,
            clock=self._deadline,
            deadline_s=deadline_s,
        )
        degraded = ["rerank"] if rerank and crossing and not aligned else []
        page = slice(first - start, last - start)
        if reranked and len(found.rows):
            ranked_page = reranker.rerank(found, page)
        elif aligned:
            ranked_page = reranker.score(found)
        else:
            ranked_page = RankedPage(rank_by_match(found.rows, found.match, first + 1, None))
        ranking, pool_align, reason = ranked_page
        if reason is not None:
            reranked, degraded = False, [reason]
            if reason == "rerank_unavailable" and modality == "image":
                calibration = None  # the texts' tokens are not there to be counted either
        words = partial(_word_counts, side, modality, tokens.shape[0])
        verdict = judge_page(
            calibration, direction, pool, pool_align, ranking, words, offset, min_probability
        )
        if verdict.filter_ignored:
            degraded = [*degraded, "min_probability"]
        ranking = ranking.take(verdict.kept)
        ranked = time.perf_counter()

        items = side.items.by_rows(ranking.rows.tolist())
        looked_up = time.perf_counter()
        evidence: list[list[WordEvidence]] | list[None] = [None] * len(items)
        if explain and ranking.align is not None:
            model = self.index.checkpoint.model
            try:
                evidence = evidence_of_items(
                    model, tokens, modality, side, items, query_text, query_size_px, query_boxes
                )
            except EngineUnavailableError:
                degraded = [*degraded, "evidence_unavailable"]
        explained = time.perf_counter()
        return SearchResult(
            hits=_hits(ranking, items, evidence, words, verdict, offset),
            reranked=reranked,
            fusion=reranker.weight if reranked else None,
            candidates=ordered.candidates,
            generation=self.index.generation,
            degraded=degraded,
            match_probability=verdict.match_probability,
            no_match=verdict.no_match,
            unknown_fields=[]
            if len(ordered.rows)
            else find_unknown_fields(self.index, target, parsed_filter),
            probabilities_reliable=verdict.reliable,
            unreliable_because=verdict.unreliable_because,
            took_ms=StageTimes(
                retrieve=1000 * (retrieved - started),
                rerank=1000 * (ranked - retrieved + explained - looked_up),
                look_up=1000 * (looked_up - ranked),
            ),
        )

    def _calibration(self, crossing: bool, min_probability: float | None) -> Calibration | None:
        """Return what the hits are judged by; None where they cannot be."""
        calibration = self.index.manifest.calibration
        if min_probability is not None:
            if calibration is None:
                raise InputError(
                    "min_probability: the index is not calibrated, its hits have no probability; "
                    "aladin calibrate fits them"
                )
            if not crossing:
                raise InputError(
                    "min_probability: only images for a text and texts for an image have a "
                    "probability"
                )
        return calibration if crossing else None

    def find_item(self, item_id: str) -> tuple[StoredItem, Modality]:
        """Look an item up by its id, among the images first.

        Raises:
            UnknownItemError: neither side has it.
        """
        _, item, modality = self._find(item_id)
        return item, modality

    def encode_item(self, item_id: str) -> tuple[Encoding, Modality]:
        """Return what is stored of an item as a query; the network does not run.

        Raises:
            UnknownItemError: neither side has it.
        """
        side, item, modality = self._find(item_id)
        tokens = side.tokens(item.row)
        return Encoding(
            embedding=side.embedding(item.row).unsqueeze(0),
            tokens=tokens.unsqueeze(0),
            mask=torch.ones(1, tokens.shape[0], dtype=torch.bool),
        ), modality

    def _find(self, item_id: str) -> tuple[Collection, StoredItem, Modality]:
        for target in TARGETS:
            if target in self.index.manifest.targets:
                side = self.index.side(target)
                item = side.items.by_id(item_id)
                if item is not None:
                    return side, item, MODALITY_OF[target]
        raise UnknownItemError(" and ".join(self.index.manifest.targets), item_id)


def _word_counts(
    side: Collection, modality: Modality, query_tokens: int, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for each row how many tokens the text has: the query's, or the row's."""
    if modality == "text":
        return np.full(len(rows), query_tokens, dtype=np.int64)
    return side.lengths(rows)


def _up_to_whole(count: int, block: int) -> int:
    """Return the least multiple of `block` that is not below `count`."""
    return -(-count // block) * block


def _check_options(
    top_k: int,
    offset: int,
    num_candidates: int,
    fusion: float | None,
    min_probability: float | None,
) -> None:
    for name, value, least in (
        ("top_k", top_k, 1),
        ("offset", offset, 0),
        ("num_candidates", num_candidates, 1),
    ):
        if value < least:
            raise InputError(f"{name}: expected at least {least}, got {value}")
    for name, value in (("fusion", fusion), ("min_probability", min_probability)):
        if value is not None and not 0 <= value <= 1:
            raise InputError(f"{name}: expected 0 to 1, got {value}")


def _check_query(query: Encoding, side: Collection) -> None:
    expected = (1, side.entry.embedding_dim)
    if tuple(query.embedding.shape) != expected:
        raise ShapeError(f"embedding {expected}", tuple(query.embedding.shape))
    if query.tokens.shape[2] != side.entry.token_dim:
        raise ShapeError(f"tokens (1, any, {side.entry.token_dim})", tuple(query.tokens.shape))


def _hits(
    ranking: Ranking,
    items: list[StoredItem],
    evidence: list[list[WordEvidence]] | list[None],
    words_of: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    verdict: Verdict,
    offset: int,
) -> list[Hit]:
    hits: list[Hit] = []
    kept = verdict.kept.tolist()
    words = None if ranking.align is None else words_of(ranking.rows)
    for place, item in enumerate(items):
        align, per_word = None, None
        if ranking.align is not None and ranking.align_ranks is not None and words is not None:
            align = StageResult(int(ranking.align_ranks[place]), float(ranking.align[place]))
            per_word = align.score / max(int(words[place]), 1)
        match = StageResult(int(ranking.match_ranks[place]), float(ranking.match[place]))
        hits.append(
            Hit(
                id=item.id,
                rank=offset + kept[place] + 1,
                score=float(ranking.scores[place]),
                per_word=per_word,
                probability=verdict.probabilities[place],
                stages=Stages(match, align),
                uri=item.uri,
                text=item.text,
                metadata=item.metadata,
                evidence=evidence[place],
            )
        )
    return hits
