"""Differences between systems that answered the same queries, with their uncertainty."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aladin_network.scoring.metrics import Ranks

# Of a normal distribution: 80 % lie below.
_POWER_Z = statistics.NormalDist().inv_cdf(0.8)


class Interval(NamedTuple):
    """A difference with its 95 % bootstrap interval."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    ours: Ranks,
    theirs: Ranks,
    image_of_text: Int[Tensor, " texts"],
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Bootstrap the difference of two rsums over the photos, captions drawn with their photo.

    Args:
        ours: Ranks of the system that is claimed to be better.
        theirs: Ranks of the other system, for the same queries.
        image_of_text: Row of each text's image.
        resamples: Number of draws of as many photos, with replacement.
        seed: Seed of the draws.

    Returns:
        rsum of `ours` minus rsum of `theirs`, in points, and its 95 % interval.
    """
    return resampled_difference([ours], [theirs], image_of_text, resamples, seed).interval


@dataclass(frozen=True)
class ResampledDifference:
    """A difference of two systems and how it varies with the photos and with the training seeds.

    Attributes:
        observed: Mean difference over all photos and runs.
        of_photos: The difference in each resample of the photos, with all runs.
        of_seeds: Deviation of the mean over the runs in each resample: normal, with the standard
            error of that mean; 0 with a single run, which says nothing of how much runs differ.
        runs: Number of training seeds, n.
        seed_variance: Variance of the difference between runs, with n - 1 degrees of freedom; 0
            with a single run.
    """

    observed: float
    of_photos: Float[Tensor, " resamples"]
    of_seeds: Float[Tensor, " resamples"]
    runs: int
    seed_variance: float

    @property
    def interval(self) -> Interval:
        """The difference with its 95 % percentile interval; seeds vary by Student's t."""
        drawn = self.of_photos + self.of_seeds * _student_tails(self.runs - 1, len(self.of_seeds))
        low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
        return Interval(self.observed, float(low), float(high))


class QueryGains(NamedTuple):
    """How far one run is ahead of another at each query, in any unit; on the CPU, float64.

    Attributes:
        text_to_image: Gain of each caption.
        image_to_text: Gain of each photo that has a caption, in their order.
    """

    text_to_image: Float[Tensor, " texts"]
    image_to_text: Float[Tensor, " images"]


class GainsOfPhotos(NamedTuple):
    """Gains of runs that were asked the same queries: those of one split, or of one fold of many.

    Attributes:
        gains: Gains of one system over another, one entry for each run.
        image_of_text: Row of each text's image.
    """

    gains: Sequence[QueryGains]
    image_of_text: Int[Tensor, " texts"]


def recall_gains(ours: Ranks, theirs: Ranks, cutoffs: Sequence[int] = (1, 5, 10)) -> QueryGains:
    """Return by how many points each query raises the sum of some recalls.

    Args:
        ours: Ranks of the system that is claimed to be better.
        theirs: Ranks of the other system, for the same queries.
        cutoffs: Recalls that are added up; those of rsum by default.
    """
    of_texts, of_images = (
        100 * (_hits(our_ranks, cutoffs) - _hits(their_ranks, cutoffs)).cpu()
        for our_ranks, their_ranks in zip(ours, theirs, strict=True)
    )
    return QueryGains(of_texts, of_images)


def resampled_difference(
    ours: Sequence[Ranks],
    theirs: Sequence[Ranks],
    image_of_text: Int[Tensor, " texts"],
    resamples: int = 1000,
    seed: int = 0,
) -> ResampledDifference:
    """Draw the mean difference of two systems' rsums; see `resample_gains`."""
    gains = [recall_gains(*pair) for pair in zip(ours, theirs, strict=True)]
    return resample_gains([GainsOfPhotos(gains, image_of_text)], resamples, seed)


def resample_gains(
    folds: Sequence[GainsOfPhotos], resamples: int = 1000, seed: int = 0
) -> ResampledDifference:
    """Draw the mean gain, summed over the two directions, over photos and over training seeds.

    Each resample draws as many photos, with their captions and with replacement; the same photos
    for all runs that were asked the same queries, and apart in each fold. Of runs there are too few
    to draw from: their mean deviates by a sum of their own deviations with independent normal
    weights (the multiplier bootstrap), whose variance is that of the mean. Runs of different folds
    also differ by their photos, which thus count twice: intervals are a little wider than needed.

    Args:
        folds: Gains by the photos that the runs were asked of; a single entry without folds.
        resamples: Number of draws.
        seed: Seed of the draws. Differences with the same seed and folds draw the same photos, and
            those of as many runs the same weights.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = [_draw_photos(fold, resamples, generator) for fold in folds]
    of_runs = torch.cat([observed for observed, _ in drawn])
    n_runs = len(of_runs)
    weights = torch.randn(resamples, n_runs, generator=generator, dtype=torch.float64)
    deviations = of_runs - of_runs.mean()
    degrees = max(1, n_runs - 1)
    return ResampledDifference(
        observed=float(of_runs.mean()),
        of_photos=torch.cat([resampled for _, resampled in drawn], dim=1).mean(dim=1),
        of_seeds=weights @ deviations / math.sqrt(n_runs * degrees),
        runs=n_runs,
        seed_variance=float(deviations.square().sum()) / degrees,
    )


def _draw_photos(
    fold: GainsOfPhotos, resamples: int, generator: torch.Generator
) -> tuple[Float[Tensor, " runs"], Float[Tensor, "resamples runs"]]:
    """Return the mean gain of each run, of all photos and in each resample of them."""
    # Only photos with a caption are queries: only these are numbered.
    _, photo_of_text = fold.image_of_text.cpu().unique(return_inverse=True)
    captions = torch.bincount(photo_of_text).double()  # (photos,)
    n_photos = captions.shape[0]
    gain_image = torch.stack([each.image_to_text for each in fold.gains], dim=1)
    gain_text = torch.stack([each.text_to_image for each in fold.gains], dim=1)
    gain_of_texts = torch.zeros_like(gain_image).index_add_(0, photo_of_text, gain_text)

    def mean_gains(times: Tensor) -> Tensor:
        """Map the number of draws of each photo (draws, photos) to mean gains (draws, runs)."""
        of_texts = (times @ gain_of_texts) / (times @ captions).unsqueeze(1)
        return of_texts + times @ gain_image / n_photos

    photos = torch.randint(n_photos, (resamples, n_photos), generator=generator)
    times = torch.zeros(resamples, n_photos, dtype=torch.float64)
    times.scatter_add_(1, photos, torch.ones_like(times))
    (of_runs,) = mean_gains(torch.ones(1, n_photos, dtype=torch.float64))
    return of_runs, mean_gains(times)


class SimultaneousInterval(NamedTuple):
    """One of several differences, with an interval that counts for all of them together.

    Attributes:
        interval: The difference; in 95 % of experiments all intervals hold their true values.
        smallest_effect: Smallest true difference that such an experiment shows, that is whose
            interval leaves out 0, in 80 % of cases.
    """

    interval: Interval
    smallest_effect: float


def simultaneous_intervals(
    differences: Sequence[ResampledDifference], units: Sequence[str] | None = None
) -> list[SimultaneousInterval]:
    """Compute intervals of several differences that hold together, by the largest deviation.

    The half width is a multiple of each difference's standard error, the same for all: the 95 %
    quantile over the resamples of the largest absolute deviation in standard errors (the
    single-step max-t method: Westfall and Young, Resampling-Based Multiple Testing, 1993).

    A variance of three seeds is hardly known, and among many differences some are far too small by
    chance. So none counts as smaller than the pooled variance of all differences of its unit, and
    what seeds add has the tails of Student's t with the pooled degrees of freedom. These are half
    the sum, since differences share a baseline.

    Args:
        differences: Differences whose resamples were drawn with one seed, at least one.
        units: Unit of each difference; only seed variances of the same unit are pooled. None if
            all have the same.
    """
    units = units or [""] * len(differences)
    observed = torch.tensor([each.observed for each in differences], dtype=torch.float64)
    of_photos = torch.stack([each.of_photos for each in differences]) - observed.unsqueeze(1)
    of_photos_error = torch.stack([each.of_photos.std() for each in differences])
    of_seeds = torch.stack([each.of_seeds for each in differences])  # (differences, resamples)
    variances = torch.zeros_like(observed)  # of the means over the runs
    for unit in set(units):
        rows = [row for row, each in enumerate(units) if each == unit]
        # Equal systems never differ: their intervals are points, and say nothing of the others.
        unequal = [row for row in rows if of_photos_error[row] > 0 or of_seeds[row].any()]
        degrees = [differences[row].runs - 1 for row in unequal]
        if not sum(degrees):
            continue
        spread = [differences[row].seed_variance for row in unequal]
        pooled = sum(d * v for d, v in zip(degrees, spread, strict=True)) / sum(degrees)
        tails = _student_tails(max(*degrees, sum(degrees) // 2), of_seeds.shape[1])
        for row, own in zip(unequal, spread, strict=True):
            if differences[row].runs > 1:
                variances[row] = max(own, pooled) / differences[row].runs
                of_seeds[row] *= tails * math.sqrt(max(own, pooled) / own) if own else 0.0
    errors = (of_photos_error.square() + variances).sqrt()
    deviations = (of_photos + of_seeds).abs() / errors.unsqueeze(1)
    factor = float(deviations.nan_to_num(nan=0.0).max(dim=0).values.quantile(0.95))
    results: list[SimultaneousInterval] = []
    for each, error in zip(differences, errors.tolist(), strict=True):
        half = factor * error
        interval = Interval(each.observed, each.observed - half, each.observed + half)
        results.append(SimultaneousInterval(interval, half + _POWER_Z * error))
    return results


def _student_tails(degrees: int, resamples: int) -> Float[Tensor, " resamples"]:
    """Draw what makes normal values those of Student's t; 1 without a degree of freedom."""
    if degrees == 0:
        return torch.ones(resamples, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(resamples, degrees, generator=generator, dtype=torch.float64)
    return (degrees / normal.square().sum(dim=1)).sqrt()


def _hits(ranks: Int[Tensor, " queries"], cutoffs: Sequence[int]) -> Float[Tensor, " queries"]:
    """Return how many of some recalls each query reaches."""
    return sum((ranks < k).double() for k in cutoffs)  # type: ignore[return-value]
