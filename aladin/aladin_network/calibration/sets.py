"""Prediction sets: the candidates likely enough that they hold a right one with some confidence.

Split conformal prediction (Vovk et al., 2005; Sadinle et al., 2019): a set has the candidates whose
probability is at least a threshold, the largest one at which the sets of that share of the
calibration's queries hold a right answer. If new queries are exchangeable with those, and search as
many items, their sets do so as often, however good the probabilities are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Confidences with a threshold, in percent; one in between takes the next higher.
_PERCENT = range(50, 100)


@dataclass(frozen=True, kw_only=True)
class PredictionSets:
    """Thresholds of sets.

    Attributes:
        items: Number of items that the fitted queries searched.
        least: Least probability of a set's items, for confidences of 50 %, 51 % and so on up to the
            highest that the number of queries, and the share of those whose candidates hold a right
            answer, support.
    """

    items: int
    least: list[float]

    @property
    def most(self) -> float:
        """Highest confidence of a set, or 0 if there is none."""
        return _PERCENT[len(self.least) - 1] / 100 if self.least else 0.0

    def level(self, confidence: float) -> float:
        """Return the fitted confidence that sets of this one have, the same or the next higher.

        Args:
            confidence: 0.5 to `most`.
        """
        return _PERCENT[_place(confidence)] / 100

    def threshold(self, confidence: float) -> float:
        """Return the least probability of a set's items.

        Args:
            confidence: 0.5 to `most`.
        """
        return self.least[_place(confidence)]


def fit_sets(own: NDArray[np.float64], items: int) -> PredictionSets:
    """Fit the thresholds.

    Args:
        own: (queries,) highest probability of a right answer among a query's candidates, or -inf if
            there is none among them.
        items: Number of items that the queries searched.
    """
    falling = np.sort(own)[::-1]
    least: list[float] = []
    for percent in _PERCENT:
        place = conformal_place(len(falling), percent / 100)
        if place >= len(falling) or np.isneginf(falling[place]):
            break
        least.append(float(falling[place]))
    return PredictionSets(items=items, least=least)


def conformal_place(count: int, confidence: float) -> int:
    """Return the place, from the best, of the case that a new one is as good as this often."""
    return math.ceil(round((count + 1) * confidence, 6)) - 1


def _place(confidence: float) -> int:
    # Rounded first: 0.55 is 55.00000000000001 percent.
    return max(0, math.ceil(round(100 * confidence, 6)) - _PERCENT[0])
