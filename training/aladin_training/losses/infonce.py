"""Contrastive cross-entropy over a batch."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_training.losses.negatives import by_pairs, check_pairs


class InfoNCELoss(nn.Module):
    """Every positive pair should win a softmax against its negatives, in both directions.

    With ``s = S / temperature``, pair n on the diagonal and u, j running over negatives::

        L = 1/2B sum_n [ log(e^s[n,n] + sum_u e^s[n,u]) - s[n,n] ]      image query, over texts
          + 1/2B sum_n [ log(e^s[n,n] + sum_j e^s[j,n]) - s[n,n] ]      text query, over images

    van den Oord et al. 2018, in the symmetric form of CLIP (Radford et al. 2021): the mean over
    the queries of each direction, and the mean of the two directions. A pair that is neither
    the query's positive nor a negative (another caption of the same image) takes no part.

    Attributes:
        rectangular: True, as the loss accepts positive pairs off the diagonal.
    """

    rectangular: ClassVar[bool] = True

    def __init__(self, temperature: float = 0.07, learnable: bool = False) -> None:
        """Choose the temperature.

        Args:
            temperature: Divisor of the scores.
            learnable: Train its logarithm, a parameter of this module, with the network.

        Raises:
            ConfigError: If the temperature is not positive.
        """
        super().__init__()
        if temperature <= 0:
            raise ConfigError(f"infonce: temperature must be positive, got {temperature}")
        self._fixed = temperature
        # The logarithm keeps a trained temperature positive.
        self.log_temperature = (
            nn.Parameter(torch.tensor(math.log(temperature))) if learnable else None
        )

    @property
    def temperature(self) -> float:
        """Present divisor of the scores."""
        if self.log_temperature is None:
            return self._fixed
        return math.exp(self.log_temperature.item())

    def scalars(self) -> dict[str, float]:
        """Return the temperature for the log, if it is trained."""
        return {} if self.log_temperature is None else {"temperature": self.temperature}

    def forward(
        self,
        scores: Float[Tensor, "images texts"],
        negatives: Bool[Tensor, "images texts"],
        positives: Int[Tensor, "pairs 2"] | None = None,
    ) -> Float[Tensor, ""]:
        """Average the cross-entropies of a batch.

        Args:
            scores: Scores; larger is more similar.
            negatives: True where a pair may serve as a negative. A query without one
                contributes 0 value and 0 gradient, and counts in the mean.
            positives: (row, column) of each positive pair, or None for the diagonal. With it the
                matrix may be rectangular, and an image may have several positive texts: each
                pair is then a query of its own in both directions.

        Raises:
            ShapeError: If `negatives` has not the scores' shape, or the scores are not square
                although no `positives` are given.
        """
        check_pairs(scores, negatives, positives)
        trained = self.log_temperature
        logits = scores / (self._fixed if trained is None else trained.exp())
        positive = by_pairs(logits, positives).own
        others = by_pairs(logits.masked_fill(~negatives, float("-inf")), positives)
        of_images = torch.cat([positive.unsqueeze(1), others.of_image], dim=1)  # (pairs, 1 + texts)
        of_texts = torch.cat([positive.unsqueeze(1), others.of_text], dim=1)
        losses = of_images.logsumexp(dim=1) + of_texts.logsumexp(dim=1) - 2 * positive
        return losses.mean() / 2
