"""Cases to fit probabilities to: queries with and without their right answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_network.calibration.features import (
    POOL,
    CandidateScores,
    Feature,
    Features,
    hit_features,
    query_features,
)
from aladin_network.calibration.measures import NoMatchKind
from aladin_network.scoring.fusion import DirectionFusion

# Number of hits of a query that are judged: the first page.
PAGE = 10
KINDS: tuple[NoMatchKind, ...] = get_args(NoMatchKind)


class AskedQuery(NamedTuple):
    """A query with the candidates that the first stage finds for it.

    Attributes:
        photo: Number of the photo that is the query, or whose caption is.
        candidates: The first stage's best candidates by falling cosine, as many as
            `candidates_kept` returns.
        right: (candidates,) bool; whether each belongs together with the query.
        has_match: Whether any item belongs together with it, among the candidates or not.
        kind: Kind of the query where nothing belongs together with it: "hard" if its right answers
            are taken out.
        embedding: (d_match,) float32, or None if the density of the queries is not needed.
    """

    photo: int
    candidates: CandidateScores
    right: NDArray[np.bool_]
    has_match: bool = True
    kind: NoMatchKind = "hard"
    embedding: NDArray[np.float32] | None = None


def candidates_kept(num_candidates: int, right: int) -> int:
    """Return how many candidates are needed to judge a query without its right answers.

    Args:
        num_candidates: Number of candidates that a search passes to its second stage.
        right: Number of right answers.
    """
    return max(num_candidates, POOL) + right


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Cases of one question with their answers.

    Attributes:
        features: (n,) values by name.
        right: (n,) bool, the answer.
        photos: (n,) int64; cases of one photo are never told apart by a fold.
        weights: (n,) float64; those of queries with a match have the prior's share of the sum, and
            the kinds of queries without a match equal shares of the rest.
        kinds: (n,) place of the query's kind in `KINDS`, or -1 if it has a match.
    """

    features: Features
    right: NDArray[np.bool_]
    photos: NDArray[np.int64]
    weights: NDArray[np.float64]
    kinds: NDArray[np.int8]

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> Examples:
        """Return some of the cases."""
        return Examples(
            features={name: values[places] for name, values in self.features.items()},
            right=self.right[places],
            photos=self.photos[places],
            weights=self.weights[places],
            kinds=self.kinds[places],
        )

    @property
    def several_kinds(self) -> list[NoMatchKind]:
        """Kinds of queries without a match, or none if all are of one kind."""
        kinds: list[NoMatchKind] = [kind for kind in KINDS if self.has(kind)]
        return kinds if len(kinds) > 1 else []

    def has(self, kind: NoMatchKind) -> bool:
        """Tell whether there are queries of a kind."""
        return bool((self.kinds == KINDS.index(kind)).any())

    def of_kind(self, kind: NoMatchKind) -> Examples:
        """Return the cases of queries with a match, and of one kind of those without.

        The share of those with a match stays what it is.
        """
        ours = self.take((self.kinds < 0) | (self.kinds == KINDS.index(kind)))
        without = ours.kinds >= 0
        rest = self.weights[self.kinds >= 0].sum() / max(ours.weights[without].sum(), 1e-12)
        return replace(ours, weights=np.where(without, ours.weights * rest, ours.weights))


@dataclass(frozen=True, kw_only=True)
class StageExamples:
    """The cases of both questions, of one direction and one way of ranking.

    Attributes:
        hits: Cases of first pages, each asking whether the hit belongs together with the query.
        first: (hits,) bool, marks each page's first hit.
        match: Cases of queries, each asking whether a right answer is among the items.
        thresholds: (queries,) scores of a query's best candidate, by the threshold's name.
    """

    hits: Examples
    first: NDArray[np.bool_]
    match: Examples
    thresholds: dict[str, NDArray[np.float64]]


def make_examples(
    queries: Iterable[AskedQuery],
    num_candidates: int,
    prior: float,
    fusion: DirectionFusion | None,
    novelty: NDArray[np.float64] | None = None,
) -> StageExamples:
    """Use every query twice: with all items, and with its right answers removed.

    A query without a right answer is used once.

    Args:
        queries: Queries of one direction, at least one.
        num_candidates: Number of the first stage's candidates that are passed to the second.
        prior: Share of queries that have a match, between 0 and 1.
        fusion: Orders the candidates, or None for the first stage's order and its scores alone.
        novelty: (queries,) how unlike the known queries each is, or None.
    """
    hits: list[Features] = []
    hits_right: list[NDArray[np.bool_]] = []
    match: list[Features] = []
    thresholds: list[dict[str, float]] = []
    photos: list[int] = []
    kinds: list[int] = []
    for place, query in enumerate(queries):
        unlike = None if novelty is None else float(novelty[place])
        for present in (True, False) if query.has_match else (False,):
            kept = np.flatnonzero(np.full(len(query.right), present) | ~query.right)
            if not len(kept):
                continue
            asked, right = query.candidates.take(kept), query.right[kept]
            if fusion is None:
                asked = asked.without_alignment()
            found, pool = asked.take(slice(num_candidates)), asked.take(slice(POOL))
            page = _page(found, fusion)
            hits.append(hit_features(pool, found.take(page)))
            hits_right.append(right[page])
            match.append(query_features(pool, unlike))
            thresholds.append(_thresholds(found))
            photos.append(query.photo)
            kinds.append(-1 if present else KINDS.index(query.kind))
    lengths = [len(right) for right in hits_right]
    of_queries = np.array(photos, dtype=np.int64)
    of_kinds = np.array(kinds, dtype=np.int8)
    answered = of_kinds < 0
    weights = np.empty(len(kinds))
    for kind in set(kinds):
        places = of_kinds == kind
        share = prior if kind < 0 else (1 - prior) / len(set(kinds) - {-1})
        weights[places] = len(kinds) * share / places.sum()
    starts = np.cumsum([0, *lengths[:-1]])
    first = np.zeros(sum(lengths), dtype=np.bool_)
    first[starts] = True
    return StageExamples(
        hits=Examples(
            features=_joined(hits),
            right=np.concatenate(hits_right),
            photos=np.repeat(of_queries, lengths),
            weights=np.repeat(weights, lengths),
            kinds=np.repeat(of_kinds, lengths),
        ),
        first=first,
        match=Examples(
            features=_joined(match),
            right=answered,
            photos=of_queries,
            weights=weights,
            kinds=of_kinds,
        ),
        thresholds={name: np.array([each[name] for each in thresholds]) for name in thresholds[0]},
    )


def _page(found: CandidateScores, fusion: DirectionFusion | None) -> NDArray[np.int64]:
    """Return the positions of the first page's hits, in its order."""
    if fusion is None or found.align is None:
        return np.arange(min(PAGE, len(found.rows)), dtype=np.int64)
    align, match = torch.from_numpy(found.align), torch.from_numpy(found.match)
    return np.argsort(-fusion.combine(align, match).numpy(), kind="stable")[:PAGE]


def _thresholds(found: CandidateScores) -> dict[str, float]:
    """Return the best score of each kind among the candidates."""
    best = {"cosine": float(found.match.max())}
    if found.align is not None:
        best["alignment"] = float(found.align.max())
        best["alignment_per_word"] = float((found.align / np.maximum(found.words, 1)).max())
    return best


def _joined(parts: Sequence[Features]) -> Features:
    names: list[Feature] = list(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in names}
