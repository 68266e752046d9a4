"""Triplet ranking loss, used by all five papers of training/PAPERS.md."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aladin_training.losses.negatives import by_pairs, check_pairs


class TripletMarginLoss(nn.Module):
    """Every positive pair should beat its negatives by a margin, in both directions.

    Over the positive pairs (i, t), with ``[x]+ = max(x, 0)`` and u, j running over negatives::

        MH = sum [m + max_u S[i,u] - S[i,t]]+  +  [m + max_j S[j,t] - S[i,t]]+
        SH = sum  sum_u [m + S[i,u] - S[i,t]]+  +  sum_j [m + S[j,t] - S[i,t]]+

    VSE++ (Faghri et al. 2018); ALADIN eq 3. The loss is a sum, not a mean: the learning rates
    of the papers assume that.

    Attributes:
        rectangular: True, as the loss accepts positive pairs off the diagonal.
    """

    rectangular: ClassVar[bool] = True

    def __init__(self, margin: float = 0.2, hardest_negative: bool = True) -> None:
        """Choose the form.

        Args:
            margin: The margin m, in units of the scores.
            hardest_negative: True for MH, the hardest negative of each query; False for SH, all
                negatives.
        """
        super().__init__()
        self.margin = margin
        self.hardest_negative = hardest_negative

    def forward(
        self,
        scores: Float[Tensor, "images texts"],
        negatives: Bool[Tensor, "images texts"],
        positives: Int[Tensor, "pairs 2"] | None = None,
    ) -> Float[Tensor, ""]:
        """Sum the hinges of a batch.

        Args:
            scores: Scores; larger is more similar.
            negatives: True where a pair may serve as a negative. A query without one
                contributes neither value nor gradient.
            positives: (row, column) of each positive pair, or None for the diagonal. With it the
                matrix may be rectangular, and an image may have several positive texts.

        Raises:
            ShapeError: If `negatives` has not the scores' shape, or the scores are not square
                although no `positives` are given.
        """
        check_pairs(scores, negatives, positives)
        seen, others = by_pairs(scores, positives), by_pairs(negatives, positives)
        from_image = self._hinges(seen.of_image, others.of_image, seen.own)
        from_text = self._hinges(seen.of_text, others.of_text, seen.own)
        return from_image + from_text

    def _hinges(
        self,
        scores: Float[Tensor, "pairs candidates"],
        negatives: Bool[Tensor, "pairs candidates"],
        positive: Float[Tensor, " pairs"],
    ) -> Float[Tensor, ""]:
        # The hinge comes before the max: same value and gradient, and no -inf arithmetic.
        cost = (self.margin + scores - positive.unsqueeze(1)).relu()
        cost = cost.masked_fill(~negatives, 0)
        return cost.amax(dim=1).sum() if self.hardest_negative else cost.sum()
