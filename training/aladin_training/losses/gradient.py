"""Gradient objectives: a gradient that is prescribed instead of derived from a loss (GOAL)."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_training.losses.negatives import by_pairs, check_pairs, hardest_negatives

TripletWeight = Literal["con", "nca", "cir"]
PairWeight = Literal["con", "lin", "sig", "lin_ms", "sig_ms"]


class GradientObjective(nn.Module):
    """Pulls every positive and pushes its hardest negative with prescribed weights.

    A query with positive score p and hardest negative score q adds ``-T P+`` to dL/dp and
    ``T P-`` to dL/dq, in both directions, where the weight of the triplet T is one of::

        con   1 if margin + q - p > 0, else 0                                       (eq 5)
        nca   1 / (1 + exp(tau (p - q)))                                            (eq 7)
        cir   1 / (1 + exp(tau (p (2 - p) - q^2 - circle_offset)))                  (eq 8)

    and the weights of its pairs P+, P- are one of::

        con     1                                    1                              (eq 9)
        lin     1 - p                                q                              (eq 10)
        sig     1 / (1 + exp(alpha (p - lambda)))    1 / (1 + exp(-beta (q - lambda)))   (11)
        sig_ms  1 / (m+ + exp(alpha (p - lambda)))   1 / (m- + exp(-beta (q - lambda)))  (12)
        lin_ms  (1 - m+) (1 - p)                     (1 + m-) q                     (eq 13)

        sig_ms: m+ = mean over P of exp(alpha (p - R)),  m- = mean over N of exp(-beta (q - R))
        lin_ms: m+ = mean over P of p - R,               m- = mean over N of q - R
        P: the other pairs' positives below q + epsilon
        N: the query's other negatives above the batch's lowest positive - epsilon

    GOAL (Xuan and Chen 2023). The 15 combinations need no loss to exist: the weights are
    constants, and backward hands ``weights * upstream gradient`` to the scores, so scaling,
    clipping and mixed precision work as for any loss. (con, con) is the gradient of the
    hardest-negative triplet loss. The paper's constants are for scores that are cosines.

    Attributes:
        rectangular: True, as the loss accepts positive pairs off the diagonal.
    """

    rectangular: ClassVar[bool] = True

    def __init__(
        self,
        triplet_weight: TripletWeight = "con",
        pair_weight: PairWeight = "con",
        margin: float = 0.2,
        tau: float = 10.0,
        alpha: float = 2.0,
        beta: float = 10.0,
        threshold: float = 0.5,
        epsilon: float = 0.1,
        gate: bool = True,
        circle_offset: float = 0.0,
        empty: float = 0.0,
    ) -> None:
        """Choose the two weights; the defaults are the paper's figures 2 and 3.

        Args:
            triplet_weight: Weight T. The paper's best pair of weights is cir with sig_ms.
            pair_weight: Weights P+ and P-.
            margin: Margin of con, in units of the scores.
            tau: Steepness of nca and cir.
            alpha: Steepness of the sigmoid of positives.
            beta: Steepness of the sigmoid of negatives.
            threshold: The constant lambda, the centre of both sigmoids.
            epsilon: Slack of the sets P and N.
            gate: False leaves con at 1 for satisfied triplets too, as the official code (G-3).
            circle_offset: 0.5 is the official code's circle, of radius 0.71 instead of 1 (G-4).
            empty: Value of m for an empty set (G-6). With 0 a weight of sig_ms reaches exp(beta /
                2); with 1 that is the plain sigmoid (but lin_ms is plain with 0: with 1 its P+ is
                0).

        Raises:
            ConfigError: If a weight is unknown.
        """
        super().__init__()
        for name, weight, known in (
            ("triplet_weight", triplet_weight, get_args(TripletWeight)),
            ("pair_weight", pair_weight, get_args(PairWeight)),
        ):
            if weight not in known:
                raise ConfigError(f"gradient: unknown {name} {weight!r}, known are {known}")
        self.triplet_weight: TripletWeight = triplet_weight
        self.pair_weight: PairWeight = pair_weight
        self.margin = margin
        self.tau = tau
        self.alpha = alpha
        self.beta = beta
        self.threshold = threshold
        self.epsilon = epsilon
        self.gate = gate
        self.circle_offset = circle_offset
        self.empty = empty

    def forward(
        self,
        scores: Float[Tensor, "images texts"],
        negatives: Bool[Tensor, "images texts"],
        positives: Int[Tensor, "pairs 2"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return a scalar whose gradient is the prescribed one.

        Args:
            scores: Cosines; row = image, column = text.
            negatives: True where a pair may serve as a negative. A query without one
                contributes neither value nor gradient.
            positives: (row, column) of each positive pair, or None for the diagonal. With it the
                matrix may be rectangular, and an image may have several positive texts: each
                pair is then a query of its own in both directions, and a text's negatives are
                the images, each of them once.

        Returns:
            A value to log, not what is minimised: the sum of q - p over all queries.

        Raises:
            ShapeError: If `negatives` has not the scores' shape, or the scores are not square
                although no `positives` are given.
        """
        check_pairs(scores, negatives, positives)
        seen, others = by_pairs(scores, positives), by_pairs(negatives, positives)
        of_images, image_gaps = self._direction(seen.of_image, others.of_image, seen.own)
        of_texts, text_gaps = self._direction(seen.of_text, others.of_text, seen.own)
        prescribed = of_images + of_texts
        # The difference is 0 with the gradient of `prescribed`; weights that have overflowed make
        # it NaN, which stops the training instead of corrupting the network.
        return image_gaps + text_gaps + (prescribed - prescribed.detach())

    def _direction(
        self,
        scores: Float[Tensor, "queries candidates"],
        negatives: Bool[Tensor, "queries candidates"],
        positive: Float[Tensor, " queries"],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Weigh p and q of every query.

        Returns:
            The sum of the weighted scores, whose gradient is the prescribed one, and the sum of
            q - p, which is a constant.
        """
        alone = ~negatives.any(dim=1)  # (queries,)
        hardest = hardest_negatives(scores, negatives).unsqueeze(1)
        negative = scores.gather(1, hardest).squeeze(1)
        p, q = positive.detach(), negative.detach()
        triplet = self._triplet_weights(p, q)
        pull, push = self._pair_weights(scores.detach(), negatives, hardest, p, q)
        weighted = (triplet * push).masked_fill(alone, 0) * negative
        weighted = weighted - (triplet * pull).masked_fill(alone, 0) * positive
        return weighted.sum(), (q - p).masked_fill(alone, 0).sum()

    def _triplet_weights(self, p: Tensor, q: Tensor) -> Tensor:
        if self.triplet_weight == "con":
            return (self.margin + q - p > 0).to(p.dtype) if self.gate else torch.ones_like(p)
        if self.triplet_weight == "nca":
            return torch.sigmoid(-self.tau * (p - q))
        return torch.sigmoid(-self.tau * (p * (2 - p) - q.square() - self.circle_offset))

    def _pair_weights(
        self, scores: Tensor, negatives: Tensor, hardest: Tensor, p: Tensor, q: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return P+ and P- of every query, each (queries,)."""
        if self.pair_weight == "con":
            return torch.ones_like(p), torch.ones_like(q)
        if self.pair_weight == "lin":
            return 1 - p, q
        if self.pair_weight == "sig":
            pull = torch.sigmoid(-self.alpha * (p - self.threshold))
            return pull, torch.sigmoid(self.beta * (q - self.threshold))

        itself = torch.eye(len(p), dtype=torch.bool, device=p.device)
        positive_set = (p.unsqueeze(0) < q.unsqueeze(1) + self.epsilon) & ~itself
        negative_set = negatives & (scores > p.min() - self.epsilon)
        negative_set = negative_set.scatter(1, hardest, False)
        above_positives = p.unsqueeze(1) - p.unsqueeze(0)  # (queries, queries): p - R
        above_negatives = q.unsqueeze(1) - scores  # (queries, candidates): q - R
        if self.pair_weight == "lin_ms":
            m_positive = self._mean(above_positives, positive_set)
            m_negative = self._mean(above_negatives, negative_set)
            return (1 - m_positive) * (1 - p), (1 + m_negative) * q
        m_positive = self._mean((self.alpha * above_positives).exp(), positive_set)
        m_negative = self._mean((-self.beta * above_negatives).exp(), negative_set)
        pull = 1 / (m_positive + (self.alpha * (p - self.threshold)).exp())
        return pull, 1 / (m_negative + (-self.beta * (q - self.threshold)).exp())

    def _mean(self, values: Tensor, members: Tensor) -> Tensor:
        """Average the members of each row; `empty` where there are none."""
        count = members.sum(dim=1)
        mean = values.masked_fill(~members, 0).sum(dim=1) / count.clamp(min=1)
        return mean.masked_fill(count == 0, self.empty)
