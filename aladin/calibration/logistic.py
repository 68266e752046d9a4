"""A fitted logistic regression as plain numbers, applied with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from aladin.calibration.features import Feature


@dataclass(frozen=True, kw_only=True)
class Term:
    """One feature's share in the log-odds: ``weight * (value - mean) / deviation``.

    Attributes:
        feature: its name, see `aladin.calibration.features`.
        mean: of the values that it was fitted on.
        deviation: of these values; positive.
        weight: fitted.
    """

    feature: Feature
    mean: float
    deviation: float
    weight: float


@dataclass(frozen=True, kw_only=True)
class LogisticModel:
    """Log-odds that are linear in standardised features.

    Attributes:
        intercept: the log-odds where every feature has its mean.
        terms: one a feature.
    """

    intercept: float
    terms: list[Term]

    def probability(self, features: Mapping[Feature, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the probability of each row.

        Args:
            features: (n,) values by name; others than those of the terms are not looked at.

        Returns:
            (n,) float64, 0 to 1.
        """
        factors, rest = self._linear
        rows = len(next(iter(features.values())))
        values = np.array([features[term.feature] for term in self.terms])
        log_odds = factors @ values.reshape(len(self.terms), rows) + rest
        # As a hyperbolic tangent, no exponential overflows.
        return 0.5 * (1 + np.tanh(0.5 * log_odds))

    @cached_property
    def _linear(self) -> tuple[NDArray[np.float64], float]:
        """(terms,) factors of the values as they are, and the log-odds where these are 0."""
        factors = np.array([term.weight / term.deviation for term in self.terms])
        means = np.array([term.mean for term in self.terms])
        return factors, self.intercept - float(factors @ means)
