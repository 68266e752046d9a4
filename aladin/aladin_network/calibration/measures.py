"""Quality of calibrated probabilities: calibration error, log loss and AUROC.

All measures are weighted; their intervals are bootstrapped over photos.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_network.types import Direction

# Kinds of queries without a match: those whose right answers were taken out; texts that describe
# an item but for one word; and texts of foreign subjects.
NoMatchKind = Literal["hard", "near", "far"]

BINS = 10
# Largest loss of a single case: a probability of 0 for a right case is not infinitely wrong.
_LEAST_PROBABILITY = 1e-12


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Answers of similar probability.

    Attributes:
        predicted: Mean probability.
        observed: Share that was right.
        weight: Share of all answers.
    """

    predicted: float
    observed: float
    weight: float


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Predicted probabilities compared with observed frequencies.

    Attributes:
        ece: Expected calibration error, over bins of equal mass.
        ece_equal_width: Expected calibration error, over bins of equal width.
        brier: Mean squared error of the probability.
        log_loss: Mean negative log-likelihood, in nats.
        base_rate: Share that was right.
        bins: Bins of equal mass, ascending.
    """

    ece: float
    ece_equal_width: float
    brier: float
    log_loss: float
    base_rate: float
    bins: list[ReliabilityBin]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % bootstrap interval, photos drawn with replacement."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class NoMatchFigures:
    """Rates at which answers report that there is no match.

    Attributes:
        below: Match probability below which an answer reports that there is no match.
        false_alarms: Share of the queries with a match whose answer nevertheless reports that there
            is none.
        detected: Share of the queries without a match whose answer reports that there is none,
            every kind counting the same.
        kinds: The same by kind, if there are several.
    """

    below: float
    false_alarms: float
    detected: float
    kinds: dict[NoMatchKind, float] = field(default_factory=dict[NoMatchKind, float])


@dataclass(frozen=True, kw_only=True)
class ProbabilityFigures:
    """Figures of one pair of models.

    Attributes:
        hits: Reliability on the hits of the first page.
        best_hit: Reliability on the first hit alone.
        match: Reliability of the probability that there is a match at all.
        no_match: Figures of answers that report no match.
        auroc: AUROC of distinguishing queries with a match from those without, by score:
            "probability", and thresholds on the best "cosine", "alignment" and
            "alignment_per_word". Every kind of queries without a match counts the same.
        auroc_gain: AUROC of the probability minus that of each threshold.
        kinds: AUROC of distinguishing queries with a match from those of each kind, by the
            probability; empty if there is only one kind.
    """

    hits: Reliability
    best_hit: Reliability
    match: Reliability
    no_match: NoMatchFigures
    auroc: dict[str, Estimate]
    auroc_gain: dict[str, Estimate]
    kinds: dict[NoMatchKind, Estimate] = field(default_factory=dict[NoMatchKind, Estimate])


@dataclass(frozen=True, kw_only=True)
class DirectionFigures:
    """Figures of one direction.

    Attributes:
        aligned: Figures of the probabilities from both stages' scores.
        matching: Figures of the probabilities from the first stage's scores alone.
    """

    aligned: ProbabilityFigures
    matching: ProbabilityFigures


@dataclass(frozen=True, kw_only=True)
class CalibrationFigures:
    """Figures of both directions, on photos that were not used for fitting.

    Attributes:
        measured_on: "out of fold", each photo judged by models fitted without it; or the name of
            another split.
        photos: Number of photos whose queries were judged.
        auroc: Mean of both directions, from the scores of both stages; see `ProbabilityFigures`.
        auroc_gain: Mean gain of both directions; see `ProbabilityFigures`.
        text_to_image: Figures of text queries that search photos.
        image_to_text: Figures of photo queries that search texts.
    """

    measured_on: str
    photos: int
    auroc: dict[str, Estimate]
    auroc_gain: dict[str, Estimate]
    text_to_image: DirectionFigures
    image_to_text: DirectionFigures

    def of(self, direction: Direction) -> DirectionFigures:
        """Return the figures of one direction."""
        return self.text_to_image if direction == "text_to_image" else self.image_to_text


def reliability(
    probabilities: NDArray[np.float64], right: NDArray[np.bool_], weights: NDArray[np.float64]
) -> Reliability:
    """Compare probabilities with the right answers.

    The expected calibration error is the mean distance of a bin's mean probability from its share
    of right cases, bins weighted by their mass.

    Args:
        probabilities: (n,), at least one.
        right: (n,).
        weights: (n,), of the cases; positive.
    """
    share = weights / weights.sum()
    bins = _bins(probabilities, right, share, _equal_mass(probabilities, share))
    by_width = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    return Reliability(
        ece=_ece(bins),
        ece_equal_width=_ece(_bins(probabilities, right, share, by_width)),
        brier=float(share @ (probabilities - right) ** 2),
        log_loss=log_loss(probabilities, right, weights),
        base_rate=float(share @ right),
        bins=bins,
    )


def log_loss(
    probabilities: NDArray[np.float64], right: NDArray[np.bool_], weights: NDArray[np.float64]
) -> float:
    """Return the mean negative log-likelihood of the outcomes in nats; see `reliability`."""
    said = np.where(right, probabilities, 1 - probabilities)
    return -float(np.average(np.log(np.maximum(said, _LEAST_PROBABILITY)), weights=weights))


def auroc(
    scores: NDArray[np.float64],
    right: NDArray[np.bool_],
    weights: NDArray[np.float64] | None = None,
) -> float:
    """Return how often a right case scores above a wrong one; equal scores count as half.

    Args:
        scores: (n,).
        right: (n,), with right and wrong cases.
        weights: (n,), number of times that each case counts, or None to count each once.
    """
    _, level = np.unique(scores, return_inverse=True)
    return _auroc_of_levels(level, right, np.ones(len(right)) if weights is None else weights)


class AurocComparison(NamedTuple):
    """AUROC of several scores of the same cases, the first of which is compared with the others.

    Attributes:
        names: Names of the scores.
        observed: (scores,) of all cases.
        drawn: (draws, scores), of photos drawn with replacement.
    """

    names: list[str]
    observed: NDArray[np.float64]
    drawn: NDArray[np.float64]

    @property
    def auroc(self) -> dict[str, Estimate]:
        """AUROC of each score, by name."""
        return {
            name: _estimate(self.observed[k], self.drawn[:, k]) for k, name in enumerate(self.names)
        }

    @property
    def gain(self) -> dict[str, Estimate]:
        """AUROC of the first score minus each other's, in the same draws, by the other's name."""
        return {
            name: _estimate(
                self.observed[0] - self.observed[k], self.drawn[:, 0] - self.drawn[:, k]
            )
            for k, name in enumerate(self.names)
            if k > 0
        }

    def mean_with(self, other: AurocComparison) -> AurocComparison:
        """Average with other cases of the same photos and draws, for scores in both."""
        names = [name for name in self.names if name in other.names]
        ours = [self.names.index(name) for name in names]
        theirs = [other.names.index(name) for name in names]
        return AurocComparison(
            names,
            (self.observed[ours] + other.observed[theirs]) / 2,
            (self.drawn[:, ours] + other.drawn[:, theirs]) / 2,
        )


def compare_auroc(
    scores: Mapping[str, NDArray[np.float64]],
    right: NDArray[np.bool_],
    photos: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> AurocComparison:
    """Compare scores by AUROC, with 95 % intervals; a photo is drawn with all its cases.

    Args:
        scores: (n,) each; the first is compared with the others, in the same draws.
        right: (n,); every photo has right and wrong cases.
        photos: (n,) int64.
        weights: (n,), number of times that each case counts, or None to count each once.
        resamples: Number of draws of as many photos, with replacement.
        seed: Seed of the bootstrap draws.
    """
    names = list(scores)
    levels = [np.unique(scores[name], return_inverse=True)[1] for name in names]
    known, photo = np.unique(photos, return_inverse=True)
    generator = np.random.default_rng(seed)

    def measured(times: NDArray[np.float64]) -> list[float]:
        counted = times[photo] if weights is None else times[photo] * weights
        return [_auroc_of_levels(level, right, counted) for level in levels]

    observed = np.array(measured(np.ones(len(known))))
    drawn = np.empty((resamples, len(names)))
    for draw in range(resamples):
        chosen = generator.integers(len(known), size=len(known))
        drawn[draw] = measured(np.bincount(chosen, minlength=len(known)).astype(np.float64))
    return AurocComparison(names, observed, drawn)


def _equal_mass(
    probabilities: NDArray[np.float64], share: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return bin numbers of bins of equal mass; equal probabilities share a bin."""
    _, level = np.unique(probabilities, return_inverse=True)
    mass = np.bincount(level, weights=share)
    middle = np.cumsum(mass) - mass / 2
    return np.minimum((middle * BINS).astype(np.int64), BINS - 1)[level]


def _bins(
    probabilities: NDArray[np.float64],
    right: NDArray[np.bool_],
    share: NDArray[np.float64],
    number: NDArray[np.int64],
) -> list[ReliabilityBin]:
    mass = np.bincount(number, weights=share, minlength=BINS)
    predicted = np.bincount(number, weights=share * probabilities, minlength=BINS)
    observed = np.bincount(number, weights=share * right, minlength=BINS)
    return [
        ReliabilityBin(
            predicted=float(predicted[k] / mass[k]),
            observed=float(observed[k] / mass[k]),
            weight=float(mass[k]),
        )
        for k in range(BINS)
        if mass[k] > 0
    ]


def _ece(bins: list[ReliabilityBin]) -> float:
    return sum(each.weight * abs(each.predicted - each.observed) for each in bins)


def _auroc_of_levels(
    level: NDArray[np.int64], right: NDArray[np.bool_], weights: NDArray[np.float64]
) -> float:
    ours = np.bincount(level, weights=weights * right)
    theirs = np.bincount(level, weights=weights * ~right)
    below = np.cumsum(theirs) - theirs
    pairs = ours.sum() * theirs.sum()
    # A resample of few photos may hold no case of one sort; no order is better then.
    return float(ours @ (below + theirs / 2) / pairs) if pairs else 0.5


def _estimate(value: float, drawn: NDArray[np.float64]) -> Estimate:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(value=float(value), low=float(low), high=float(high))
