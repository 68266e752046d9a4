"""Contrastive cross-entropy over a batch."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from aladin.errors import ConfigError
from training.losses.negatives import diagonal_pairs


class InfoNCELoss(nn.Module):
    """Every positive pair should win a softmax against its negatives, in both directions.

    With ``s = S / temperature``, pair n on the diagonal and u, j running over negatives::

        L = 1/2B sum_n [ log(e^s[n,n] + sum_u e^s[n,u]) - s[n,n] ]      image query, over texts
          + 1/2B sum_n [ log(e^s[n,n] + sum_j e^s[j,n]) - s[n,n] ]      text query, over images

    van den Oord et al. 2018, in the symmetric form of CLIP (Radford et al. 2021): the mean over
    the queries of each direction, and the mean of the two directions. A pair that is neither
    on the diagonal nor a negative (another caption of the same image) takes no part.
    """

    def __init__(self, temperature: float = 0.07, learnable: bool = False) -> None:
        """Choose the temperature.

        Args:
            temperature: divides the scores.
            learnable: train its logarithm, a parameter of this module, with the network.

        Raises:
            ConfigError: the temperature is not positive.
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
        """What the scores are divided by at present."""
        if self.log_temperature is None:
            return self._fixed
        return math.exp(self.log_temperature.item())

    def forward(
        self, scores: Float[Tensor, "batch batch"], negatives: Bool[Tensor, "batch batch"]
    ) -> Float[Tensor, ""]:
        """Average the cross-entropies of a batch.

        Args:
            scores: larger is more similar; pair n is ``scores[n, n]``.
            negatives: True where a pair may serve as a negative. A query without one
                contributes 0 value and 0 gradient, and counts in the mean.

        Raises:
            ShapeError: the scores are not square, or `negatives` has another shape.
        """
        positives = diagonal_pairs(scores, negatives)
        trained = self.log_temperature
        logits = scores / (self._fixed if trained is None else trained.exp())
        positive = logits.diagonal()
        competing = negatives.clone()
        competing[positives[:, 0], positives[:, 1]] = True
        logits = logits.masked_fill(~competing, float("-inf"))
        of_images = logits.logsumexp(dim=1) - positive
        of_texts = logits.logsumexp(dim=0) - positive
        return (of_images.mean() + of_texts.mean()) / 2
