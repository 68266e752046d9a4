"""The order of an answer: the first stage's, or the second stage's within its candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_network.scoring.fusion import DirectionFusion

AlignScorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]


class Ranking(NamedTuple):
    """Rows in the order of an answer, with what the stages say of them.

    Attributes:
        rows: (hits,) int64.
        scores: (hits,) what the order is by.
        match: (hits,) cosines of the embeddings.
        match_ranks: (hits,) counted from 1.
        align: (hits,) alignment scores; None between items of one modality.
        align_ranks: (hits,) counted from 1; None between items of one modality.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    match: NDArray[np.float32]
    match_ranks: NDArray[np.int64]
    align: NDArray[np.float32] | None = None
    align_ranks: NDArray[np.int64] | None = None

    def take(self, places: NDArray[np.int64] | slice) -> Ranking:
        """Return the rows at some places."""
        return Ranking(*(None if part is None else part[places] for part in self))  # pyright: ignore[reportArgumentType]


def rank_by_match(
    rows: NDArray[np.int64], match: NDArray[np.float32], first_rank: int, align: AlignScorer | None
) -> Ranking:
    """Keep the first stage's order.

    Args:
        rows: best first.
        match: their cosines.
        first_rank: of the first row, counted from 1.
        align: scores rows by the second stage, for information; None where there is none.
    """
    ranks = np.arange(first_rank, first_rank + len(rows), dtype=np.int64)
    ranking = Ranking(rows, match, match, ranks)
    if align is None:
        return ranking
    scores = align(rows)
    return ranking._replace(align=scores, align_ranks=_ranks(scores) + first_rank - 1)


def rank_by_fusion(
    rows: NDArray[np.int64],
    match: NDArray[np.float32],
    first_rank: int,
    align: AlignScorer,
    fusion: DirectionFusion,
    weight: float,
) -> Ranking:
    """Order candidates by the fusion of both stages' scores; equal ones keep their order.

    Args:
        rows: candidates, best first.
        match: their cosines.
        first_rank: of the first candidate, counted from 1.
        align: scores rows by the second stage.
        fusion: constants of this direction.
        weight: of the alignment score; 1 orders by it alone.
    """
    ranking = rank_by_match(rows, match, first_rank, align)
    scores = torch.from_numpy(ranking.align)
    fused = fusion.combine(scores, torch.from_numpy(match), weight).numpy()
    return ranking._replace(scores=fused).take(np.argsort(-fused, kind="stable"))


def rank_in_blocks(
    rows: NDArray[np.int64],
    match: NDArray[np.float32],
    first_rank: int,
    align: AlignScorer,
    fusion: DirectionFusion,
    weight: float,
    block: int,
) -> Ranking:
    """Order rows `block` by `block`, each as `rank_by_fusion` orders candidates.

    Args:
        rows: at least one, best first.
        match: their cosines.
        first_rank: of the first row, counted from 1.
        align: scores rows by the second stage.
        fusion: constants of this direction.
        weight: of the alignment score.
        block: rows a block.
    """
    rankings = [
        rank_by_fusion(
            rows[start : start + block],
            match[start : start + block],
            first_rank + start,
            align,
            fusion,
            weight,
        )
        for start in range(0, len(rows), block)
    ]
    parts = zip(*rankings, strict=True)
    return Ranking(*(None if part[0] is None else np.concatenate(part) for part in parts))  # pyright: ignore[reportArgumentType]


def _ranks(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return each score's rank, counted from 1; equal scores rank in their order."""
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks
