"""What a calibration is fitted to: queries asked with and without their right answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aladin.calibration.features import Feature, Features, hit_features, query_features
from aladin.calibration.scores import POOL, CandidateScores
from aladin.fusion import DirectionFusion

# Hits of a query that are judged: the first page.
PAGE = 10


class AskedQuery(NamedTuple):
    """A query, and what the first stage finds for it.

    Attributes:
        photo: number of the photo that asks, or whose caption asks.
        candidates: the first stage's best by falling cosine, as many as `candidates_kept` says.
        right: (candidates,) bool; whether each belongs together with the query.
    """

    photo: int
    candidates: CandidateScores
    right: NDArray[np.bool_]


def candidates_kept(num_candidates: int, right: int) -> int:
    """Return how many candidates it takes to judge a query without its right answers.

    Args:
        num_candidates: that a search hands to its second stage.
        right: number of right answers.
    """
    return max(num_candidates, POOL) + right


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Cases of one question with their answers.

    Attributes:
        features: (n,) values by name.
        right: (n,) bool, the answer.
        photos: (n,) int64; cases of one photo are never told apart by a fold.
        weights: (n,) float64; their mean is 1 where both kinds of query are as likely.
    """

    features: Features
    right: NDArray[np.bool_]
    photos: NDArray[np.int64]
    weights: NDArray[np.float64]

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> Examples:
        """Return some of the cases."""
        return Examples(
            features={name: values[places] for name, values in self.features.items()},
            right=self.right[places],
            photos=self.photos[places],
            weights=self.weights[places],
        )


@dataclass(frozen=True, kw_only=True)
class StageExamples:
    """The cases of both questions, of one direction and one way of ranking.

    Attributes:
        hits: of first pages: does the hit belong together with the query?
        first: (hits,) bool, marks each page's first hit.
        match: of queries: is a right answer among the items?
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
) -> StageExamples:
    """Ask every query twice: among all items, and among those that are not right answers.

    Args:
        queries: of one direction, at least one.
        num_candidates: of the first stage, handed to the second.
        prior: share of queries that have a match, between 0 and 1.
        fusion: orders the candidates; None: the first stage's order, and its scores alone.
    """
    hits: list[Features] = []
    hits_right: list[NDArray[np.bool_]] = []
    match: list[Features] = []
    thresholds: list[dict[str, float]] = []
    photos: list[int] = []
    has_match: list[bool] = []
    for query in queries:
        for present in (True, False):
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
            match.append(query_features(pool))
            thresholds.append(_thresholds(found))
            photos.append(query.photo)
            has_match.append(present)
    lengths = [len(right) for right in hits_right]
    of_queries = np.array(photos, dtype=np.int64)
    answered = np.array(has_match, dtype=np.bool_)
    weights = 2 * np.where(answered, prior, 1 - prior)
    starts = np.cumsum([0, *lengths[:-1]])
    first = np.zeros(sum(lengths), dtype=np.bool_)
    first[starts] = True
    return StageExamples(
        hits=Examples(
            features=_joined(hits),
            right=np.concatenate(hits_right),
            photos=np.repeat(of_queries, lengths),
            weights=np.repeat(weights, lengths),
        ),
        first=first,
        match=Examples(features=_joined(match), right=answered, photos=of_queries, weights=weights),
        thresholds={name: np.array([each[name] for each in thresholds]) for name in thresholds[0]},
    )


def _page(found: CandidateScores, fusion: DirectionFusion | None) -> NDArray[np.int64]:
    """Return the places of the first page's hits, in its order."""
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
