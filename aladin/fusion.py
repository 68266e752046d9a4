"""The order of the second stage: both scores on one scale, weighted."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import ConfigDict
from torch import Tensor

from aladin.metrics import Ranks, retrieval_ranks
from aladin.strict_config import STRICT

Direction = Literal["text_to_image", "image_to_text"]

# Weights that are tried on the validation split.
_GRID = [step / 20 for step in range(21)]


@dataclass(frozen=True, kw_only=True)
class DirectionFusion:
    """Constants of one direction, fitted on the validation split's candidates.

    ``score = weight * z(align) + (1 - weight) * z(match)``. Only differences within a query
    matter to the order, so the deviations are those around each query's own mean.

    Attributes:
        weight: of the alignment score; 1 orders by it alone, the papers' rule.
        align_mean: mean alignment score of the candidates.
        align_std: its deviation within a query.
        match_mean: mean matching score of the candidates.
        match_std: its deviation within a query.
    """

    weight: float = 1.0
    align_mean: float = 0.0
    align_std: float = 1.0
    match_mean: float = 0.0
    match_std: float = 1.0

    def combine(self, align: Tensor, match: Tensor, weight: float | None = None) -> Tensor:
        """Fuse the two scores of candidates.

        Args:
            align: alignment scores, any shape.
            match: matching scores, same shape.
            weight: overrides the fitted one; 1 returns `align` itself, the papers' rule.
        """
        weight = self.weight if weight is None else weight
        if weight == 1:
            return align
        z_align = (align - self.align_mean) / self.align_std
        z_match = (match - self.match_mean) / self.match_std
        return weight * z_align + (1 - weight) * z_match


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """The fusion of both directions."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    text_to_image: DirectionFusion = DirectionFusion()
    image_to_text: DirectionFusion = DirectionFusion()

    def of(self, direction: Direction) -> DirectionFusion:
        """Return the constants of one direction."""
        return self.text_to_image if direction == "text_to_image" else self.image_to_text


def fit_fusion(
    align: Float[Tensor, "images texts"],
    match: Float[Tensor, "images texts"],
    image_of_text: Int[Tensor, " texts"],
    candidates: int = 100,
) -> Fusion:
    """Fit the constants, and choose the weights with the best recalls.

    Args:
        align: alignment scores of a validation split.
        match: matching scores of the same pairs.
        image_of_text: row of each text's image.
        candidates: best by `match` per query; what the second stage gets to see.

    Returns:
        Per direction, the weight with the highest R@1 + R@5 + R@10; of equal ones the largest.
    """
    return Fusion(
        text_to_image=_fit(align, match, image_of_text, candidates, "text_to_image"),
        image_to_text=_fit(align, match, image_of_text, candidates, "image_to_text"),
    )


def _fit(
    align: Tensor, match: Tensor, image_of_text: Tensor, candidates: int, direction: Direction
) -> DirectionFusion:
    axis = 0 if direction == "text_to_image" else 1
    count = min(candidates, match.shape[axis])
    best_match, where = match.topk(count, dim=axis)
    best_align = align.gather(axis, where)
    constants = DirectionFusion(
        align_mean=float(best_align.mean()),
        align_std=_within_query_std(best_align, axis),
        match_mean=float(best_match.mean()),
        match_std=_within_query_std(best_match, axis),
    )
    outside = torch.ones_like(match, dtype=torch.bool).scatter(axis, where, False)

    def hits(weight: float) -> float:
        fused = constants.combine(align, match, weight).masked_fill(outside, float("-inf"))
        ranks = _of(retrieval_ranks(fused, image_of_text), direction)
        return sum(float((ranks < k).double().mean()) for k in (1, 5, 10))

    weight = max(_GRID, key=lambda each: (hits(each), each))
    return dataclasses.replace(constants, weight=weight)


def _within_query_std(values: Tensor, axis: int) -> float:
    return max(float(values.var(dim=axis, correction=0).mean().sqrt()), 1e-6)


def _of(ranks: Ranks, direction: Direction) -> Tensor:
    return ranks.text_to_image if direction == "text_to_image" else ranks.image_to_text
