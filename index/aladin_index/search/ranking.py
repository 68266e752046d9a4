"""Order of an answer: by the first stage, or by the second among its candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_network.scoring.fusion import DirectionFusion

AlignScorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]


class Ranking(NamedTuple):
    """Rows in the order of an answer, with the scores and ranks of both stages.

    Attributes:
        rows: (hits,) int64.
        scores: (hits,) scores that decide the order.
        match: (hits,) cosines of the embeddings.
        match_ranks: (hits,) ranks by `match`, counted from 1.
        align: (hits,) alignment scores, or None between items of one modality.
        align_ranks: (hits,) ranks by `align`, counted from 1, or None as `align`.
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
        rows: Rows, best first.
        match: Cosines of the rows.
        first_rank: Rank of the first row, counted from 1.
        align: Scores rows by the second stage, for information; None if there is none.
    """
    ranks = np.arange(first_rank, first_rank + len(rows), dtype=np.int64)
    if align is None:
        return Ranking(rows, match, match, ranks)
    scores = align(rows)
    align_ranks = np.empty_like(ranks)
    align_ranks[np.argsort(-scores, kind="stable")] = ranks
    return Ranking(rows, match, match, ranks, scores, align_ranks)


def rank_in_blocks(
    rows: NDArray[np.int64],
    match: NDArray[np.float32],
    first_rank: int,
    align: AlignScorer,
    fusion: DirectionFusion,
    weight: float,
    block: int,
) -> Ranking:
    """Order rows by the fusion of both stages' scores, `block` by `block`.

    Rows with equal scores keep their order.

    Args:
        rows: At least one row, best first.
        match: Cosines of the rows.
        first_rank: Rank of the first row, counted from 1.
        align: Scores rows by the second stage.
        fusion: Constants of this direction.
        weight: Weight of the alignment score; 1 orders by it alone.
        block: Rows in a block, at least 1.
    """
    scores = align(rows)
    fused = fusion.combine(torch.from_numpy(scores), torch.from_numpy(match), weight).numpy()
    ranks = np.arange(first_rank, first_rank + len(rows), dtype=np.int64)
    blocks = (ranks - first_rank) // block
    # Stable: the last key decides first.
    align_ranks = np.empty_like(ranks)
    align_ranks[np.lexsort((-scores, blocks))] = ranks
    order = np.lexsort((-fused, blocks))
    return Ranking(rows, fused, match, ranks, scores, align_ranks).take(order)
