"""The hits of two models, merged to one page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.answer_facts import AnswerUpgrade, HitModel
from aladin_index.search.backend import Collection, SearchBackend
from aladin_index.search.candidates import Found, ValidSearch
from aladin_index.search.options import SearchOptions
from aladin_index.search.presenting import Page, Times, Verdict, present
from aladin_index.search.rerank import RankedPage, sort_hits
from aladin_index.search.results import SearchAnswer, SearchHit, TookMs
from aladin_index.upgrade.scale import ScaleItems


class EncodedCollection(Collection, Protocol):
    """The items of a collection that the new model has encoded."""

    @property
    def share(self) -> float:
        """Share of the live collection's items that are among them."""
        ...

    @property
    def rest(self) -> Collection:
        """The items of the live collection that are not among them."""
        ...


class RankedHits(NamedTuple):
    """The best hits of one model: those of all pages up to the requested one."""

    search: ValidSearch
    found: Found
    page: RankedPage

    def scaled(self, index: SearchBackend, model: HitModel, scale: ScaleItems) -> ModelHits:
        """Bring the scores to the common scale.

        Args:
            index: Index whose items these are, with the model that is to explain them.
            model: What scored the hits.
            scale: The sample that the scores are compared with.
        """
        ranking = self.page.ranking
        of_query = scale.scale(self.search, reranked=self.page.reranked)
        places = np.arange(len(ranking.rows), dtype=np.int64)
        return ModelHits(index, model, self, places, of_query.of(ranking.scores))


@dataclass(frozen=True)
class ModelHits:
    """Hits that a model answers for.

    Attributes:
        index: Index whose items these are.
        model: What scored the hits.
        ranked: All hits of the model.
        places: Places of these hits among them, ascending.
        scores: Their scores on the common scale.
    """

    index: SearchBackend
    model: HitModel
    ranked: RankedHits
    places: NDArray[np.int64]
    scores: NDArray[np.float32]

    @property
    def blocks(self) -> NDArray[np.int64]:
        """Blocks of candidates that the hits are from: no page is to change with the next one."""
        return self.places // max(self.ranked.found.candidates, 1)

    def take(self, chosen: NDArray[np.int64]) -> ModelHits:
        """Return some of the hits."""
        return replace(self, places=self.places[chosen], scores=self.scores[chosen])

    def present(self, times: Times) -> SearchAnswer:
        """Look up and explain the hits."""
        search, found, page = self.ranked
        verdict = Verdict(np.arange(len(self.places)), [None] * len(self.places))
        shown = Page(search, found, page, verdict, page.ranking.take(self.places))
        (answer,) = present(self.index, [shown], times)
        for hit, score in zip(answer.hits, self.scores.tolist(), strict=True):
            hit.score, hit.model = score, self.model
        return answer


def merge_hits(
    options: SearchOptions,
    old: ModelHits,
    new: ModelHits,
    times: Times,
    *,
    share: float,
    is_calibrated: bool,
) -> SearchAnswer:
    """Merge the hits of both models to the page that was asked for.

    Args:
        options: Options of the search, with the page.
        old: Hits among the items that the new model has not encoded.
        new: Hits of the new model.
        times: When the stages ended.
        share: Share of the items that the new model has encoded.
        is_calibrated: Whether the live generation has probabilities, which the answer lacks.
    """
    scores = np.concatenate([old.scores, new.scores])
    blocks = np.concatenate([old.blocks, new.blocks])
    order = np.lexsort((-scores, blocks))[options.offset : options.offset + options.k]
    count = len(old.places)
    by_old = old.take(order[order < count]).present(times)
    by_new = new.take(order[order >= count] - count).present(times)
    hits = iter(by_old.hits), iter(by_new.hits)
    page: list[SearchHit] = []
    for rank, place in enumerate(order.tolist(), start=options.offset + 1):
        hit = next(hits[place >= count])
        hit.rank = rank
        page.append(hit)
    rest: Literal["old", "bridge"] = "bridge" if old.model == "bridge" else "old"
    answer = replace(
        by_new,
        hits=page,
        reranked=by_old.reranked or by_new.reranked,
        fusion=by_new.fusion if by_new.reranked else by_old.fusion,
        candidates=by_old.candidates + by_new.candidates,
        degraded=list(dict.fromkeys([*by_old.degraded, *by_new.degraded])),
        probabilities_reliable=False if is_calibrated else None,
        unreliable_because="upgrade" if is_calibrated else None,
        unknown_fields=by_old.unknown_fields,
        upgrade=AnswerUpgrade(
            old_model=old.index.manifest.model.id,
            new_model=new.index.manifest.model.id,
            rest=rest,
            encoded=share,
        ),
        took_ms=_added(by_old.took_ms, by_new.took_ms),
    )
    if options.sort is None:
        return answer
    return sort_hits(old.index, replace(old.ranked.search, options=options), answer)


def _added(old: TookMs, new: TookMs) -> TookMs:
    """Return the times of both models; their stages were measured together."""
    return TookMs(
        decode=max(old.decode, new.decode),
        encode=max(old.encode, new.encode),
        retrieve=new.retrieve,
        rerank=new.rerank,
        total=max(old.total, new.total),
    )
