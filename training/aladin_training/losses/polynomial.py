"""The maximum polynomial loss (MPL), one of DBL's rivals."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_training.losses.negatives import by_pairs, check_pairs, hardest_negatives

# A positive pair with a higher score has nothing left to gain.
_PERFECT = 1 - 1e-5


class PolynomialLoss(nn.Module):
    """Polynomials weight a query's positive pair and its hardest negative by their scores.

    With p the score of the positive pair and q that of the hardest negative, both cosines::

        [0.5 - 0.7 p + 0.2 p^2]+ + [0.03 - 0.4 q + 0.9 q^2]+     where q + margin > p

    summed over the queries of both directions and divided by the batch size. Wei et al.,
    *Universal Weighting Metric Learning for Cross-Modal Matching*, CVPR 2020, with the degrees and
    coefficients of DBL's official code.
    """

    def __init__(
        self,
        margin: float = 0.2,
        positive: Sequence[float] = (0.5, -0.7, 0.2),
        negative: Sequence[float] = (0.03, -0.4, 0.9),
    ) -> None:
        """Choose the polynomials.

        Args:
            margin: Distance within which a negative counts, in units of the scores.
            positive: Coefficients of the powers 0, 1, 2, ... of p.
            negative: Coefficients of the powers 0, 1, 2, ... of q.

        Raises:
            ConfigError: If a polynomial has no coefficient.
        """
        super().__init__()
        if not positive or not negative:
            raise ConfigError("polynomial: expected at least one coefficient of each polynomial")
        self.margin = margin
        self.positive = tuple(positive)
        self.negative = tuple(negative)

    def forward(
        self, scores: Float[Tensor, "batch batch"], negatives: Bool[Tensor, "batch batch"]
    ) -> Float[Tensor, ""]:
        """Sum the costs of a batch whose row n and column n belong together.

        Args:
            scores: Scores; row = image, column = text.
            negatives: True where a pair may serve as a negative. A query without one
                contributes neither value nor gradient.

        Raises:
            ShapeError: If the scores are not square, or the mask has another shape.
        """
        check_pairs(scores, negatives)
        positive = by_pairs(scores, None).own  # (batch,)
        both = self._line(scores, negatives, positive) + self._line(scores.T, negatives.T, positive)
        return both / len(positive)

    def _line(
        self,
        scores: Float[Tensor, "queries candidates"],
        negatives: Bool[Tensor, "queries candidates"],
        positive: Float[Tensor, " queries"],
    ) -> Float[Tensor, ""]:
        """Sum over the queries of one direction."""
        where = hardest_negatives(scores, negatives).unsqueeze(1)
        hardest = scores.gather(1, where).squeeze(1)
        counts = negatives.any(dim=1) & (hardest + self.margin > positive) & (positive < _PERFECT)
        cost = _polynomial(self.positive, positive).relu()
        cost = cost + _polynomial(self.negative, hardest).relu()
        return cost.masked_fill(~counts, 0).sum()


def _polynomial(coefficients: Sequence[float], values: Tensor) -> Tensor:
    """Evaluate a polynomial by Horner's rule; the coefficient of power 0 comes first."""
    total = torch.zeros_like(values)
    for coefficient in reversed(coefficients):
        total = total * values + coefficient
    return total
