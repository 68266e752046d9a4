"""Percentile intervals of recalls, by drawing photos with their captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Estimate(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Draws:
    """A number as observed and in every resample; sums and differences stay paired.

    Attributes:
        observed: of the photos as they are.
        resampled: (resamples,) float64.
    """

    observed: float
    resampled: Float[Tensor, " resamples"]

    def __add__(self, other: Draws) -> Draws:
        """Add two numbers of the same resamples."""
        return Draws(self.observed + other.observed, self.resampled + other.resampled)

    def __sub__(self, other: Draws) -> Draws:
        """Subtract a number of the same resamples."""
        return Draws(self.observed - other.observed, self.resampled - other.resampled)

    def estimate(self) -> Estimate:
        """Return the number with the 2.5 and 97.5 percentiles of the resamples."""
        low, high = self.resampled.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
        return Estimate(self.observed, float(low), float(high))


class PhotoBootstrap:
    """Draws as many photos as there are, with replacement, each with all of its captions.

    Captions of one photo are right or wrong together more often than not, so they are no
    independent queries. The draws are those of `aladin.metrics.paired_bootstrap`.
    """

    def __init__(
        self, image_of_text: Int[Tensor, " texts"], resamples: int = 1000, seed: int = 0
    ) -> None:
        """Draw.

        Args:
            image_of_text: each text's photo, 0 up to the number of photos; each has a text.
            resamples: number of draws.
            seed: of the draws.
        """
        self.resamples = resamples
        self._image_of_text = image_of_text
        self._captions = torch.bincount(image_of_text).double()  # (photos,)
        photos = len(self._captions)
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(photos, (resamples, photos), generator=generator)
        times = torch.zeros(resamples, photos, dtype=torch.float64)
        self._times = times.scatter_add_(1, drawn, torch.ones_like(times))

    def mean_of_texts(self, values: Float[Tensor, " texts"]) -> Draws:
        """Draw the mean of what each text has, float64."""
        of_photos = torch.zeros_like(self._captions).index_add_(0, self._image_of_text, values)
        resampled = (self._times @ of_photos) / (self._times @ self._captions)
        return Draws(float(values.mean()), resampled)

    def mean_of_images(self, values: Float[Tensor, " photos"]) -> Draws:
        """Draw the mean of what each photo has, float64."""
        return Draws(float(values.mean()), self._times @ values / len(values))
