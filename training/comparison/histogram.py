"""How the scores of the right pairs and of all others are spread (DBL figures 6 and 7)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BINS = 80


class ScoreHistogram(NamedTuple):
    """Counts of scores in bins of equal width.

    Attributes:
        low: left edge of the first bin.
        high: right edge of the last bin.
        positive: pairs of a photo and one of its captions in each bin, (bins,) float64.
        negative: all other pairs, (bins,) float64.
    """

    low: float
    high: float
    positive: Tensor
    negative: Tensor

    def edges(self) -> list[float]:
        """Return the edges of all bins."""
        return torch.linspace(self.low, self.high, len(self.positive) + 1).tolist()


def score_histogram(scores: Tensor, image_of_text: Tensor) -> ScoreHistogram:
    """Count the scores of positive and negative pairs from the lowest to the highest score.

    Args:
        scores: ``scores[image, text]``, float.
        image_of_text: row of each text's image, (texts,).
    """
    scores = scores.detach().double().cpu()
    low, high = float(scores.min()), float(scores.max())
    if high <= low:  # a network that says the same of all pairs
        high = low + 1.0
    own = scores.gather(0, image_of_text.cpu().unsqueeze(0)).flatten()  # (texts,)
    positive, of_all = (
        torch.histc(values, BINS, min=low, max=high) for values in (own, scores.flatten())
    )
    return ScoreHistogram(low, high, positive, of_all - positive)
