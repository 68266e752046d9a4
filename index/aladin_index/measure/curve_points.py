"""The points of a candidate curve: recalls with bootstrap intervals, and search times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aladin_index.ann import faiss
from aladin_index.measure.evaluate import Question
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.graphs.threads import compute_threads, set_compute_threads
from aladin_network.types import Direction, Modality, Progress, Target

_TOP = 10

RULES: tuple[Rule, ...] = ("fitted", "papers")


class Estimate(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Draws:
    """Observed value and its bootstrap resamples; sums and differences remain paired.

    Attributes:
        observed: Value for the original photos.
        resampled: (resamples,) float64.
    """

    observed: float
    resampled: Float[Tensor, " resamples"]

    def __add__(self, other: Draws) -> Draws:
        """Add a value with the same resamples."""
        return Draws(self.observed + other.observed, self.resampled + other.resampled)

    def __sub__(self, other: Draws) -> Draws:
        """Subtract a value with the same resamples."""
        return Draws(self.observed - other.observed, self.resampled - other.resampled)

    def estimate(self) -> Estimate:
        """Return the value with the 2.5th and 97.5th percentiles of the resamples."""
        low, high = self.resampled.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
        return Estimate(self.observed, float(low), float(high))


class PhotoBootstrap:
    """Draws as many photos as exist, with replacement, each with all of its captions.

    Captions of one photo are right or wrong together more often than not, so they are no
    independent queries. The draws are those of `aladin_network.scoring.bootstrap.paired_bootstrap`.
    """

    def __init__(
        self, image_of_text: Int[Tensor, " texts"], resamples: int = 1000, seed: int = 0
    ) -> None:
        """Draw the resamples."""
        self.resamples = resamples
        self._image_of_text = image_of_text
        self._captions = torch.bincount(image_of_text).double()  # (photos,)
        photos = len(self._captions)
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(photos, (resamples, photos), generator=generator)
        times = torch.zeros(resamples, photos, dtype=torch.float64)
        self._times = times.scatter_add_(1, drawn, torch.ones_like(times))

    def mean_of_texts(self, values: Float[Tensor, " texts"]) -> Draws:
        """Draw the mean of a value per text, in float64."""
        of_photos = torch.zeros_like(self._captions).index_add_(0, self._image_of_text, values)
        resampled = (self._times @ of_photos) / (self._times @ self._captions)
        return Draws(float(values.mean()), resampled)

    def mean_of_images(self, values: Float[Tensor, " photos"]) -> Draws:
        """Draw the mean of a value per photo, in float64."""
        return Draws(float(values.mean()), self._times @ values / len(values))


class SearchTime(NamedTuple):
    """Milliseconds of both stages on one thread, without encoding and looking up the hits."""

    median_ms: float
    p95_ms: float


def search_times(
    searcher: TwoStageSearcher,
    questions: Sequence[Question],
    modality: Modality,
    target: Target,
    numbers: Sequence[int],
    progress: Progress,
) -> list[SearchTime]:
    """Time searches for as many hits as candidates, at most ten.

    With fewer candidates than hits a search goes on block by block: that is how pages continue,
    not what the candidates cost.

    Every question is asked with every number of candidates before the next one is: whatever
    else keeps the machine busy slows all numbers alike. Their order is drawn anew for each
    question, for a search that follows one of all items finds the caches full of other things.
    """
    random = np.random.default_rng(0)
    times_ms = np.empty((len(questions), len(numbers)))
    threads = compute_threads(), faiss.omp_get_max_threads()
    set_compute_threads(1)  # as the service does: a query is one thread's work
    faiss.omp_set_num_threads(1)
    try:
        for row, (query, _) in enumerate(questions):
            for column in random.permutation(len(numbers)):
                number = numbers[column]
                took_ms = searcher.search(
                    Term(query, modality),
                    target,
                    SearchOptions(k=min(_TOP, number), candidates=number),
                ).took_ms
                times_ms[row, column] = took_ms.retrieve + took_ms.rerank
            progress.advance()
    finally:
        set_compute_threads(threads[0])
        faiss.omp_set_num_threads(threads[1])
    median, p95 = np.quantile(times_ms, (0.5, 0.95), axis=0)
    return [SearchTime(*pair) for pair in zip(median.tolist(), p95.tolist(), strict=True)]


Rule = Literal["fitted", "papers"]


class DirectionQuality(NamedTuple):
    """Search quality of one direction.

    Attributes:
        r1: R@1 in percent.
        r1_gain: R@1 less that of matching alone, in points, over the same draws of photos.
        agreement: Share of the exhaustive order's top 10, by the same rule, that is in the top 10.
    """

    r1: Estimate
    r1_gain: Estimate
    agreement: float


class Quality(NamedTuple):
    """Search quality of both directions.

    Attributes:
        text_to_image: Quality of searches for images by text.
        image_to_text: Quality of searches for texts by image.
        rsum: Sum of R@1, R@5 and R@10 of both directions.
        rsum_gain: Difference between rsum and that of matching alone, over the same draws of
            photos.
    """

    text_to_image: DirectionQuality
    image_to_text: DirectionQuality
    rsum: Estimate
    rsum_gain: Estimate


class SearchTimes(NamedTuple):
    """Search time of each direction."""

    text_to_image: SearchTime
    image_to_text: SearchTime

    @property
    def mean_ms(self) -> float:
        """The mean of both medians."""
        return (self.text_to_image.median_ms + self.image_to_text.median_ms) / 2


class CurvePoint(NamedTuple):
    """Two-stage search with one number of candidates.

    Attributes:
        candidates: Number of candidates passed to the second stage at a time.
        fitted: Quality with the fusion fitted on validation data.
        papers: Quality with the alignment score alone, the rule of the papers.
        times: Times with the fitted fusion; the rule does not affect them.
    """

    candidates: int
    fitted: Quality
    papers: Quality
    times: SearchTimes


@dataclass(frozen=True, kw_only=True)
class CandidateCurve:
    """Quality and time against the number of candidates.

    Attributes:
        points: From one candidate (matching alone) to all items (the exhaustive order), for the
            fused score and for the alignment score alone.
        default_candidates: Default number of candidates of a search, by direction.
        items: Number of competing items by direction: images for a text, texts for an image.
        texts: Number of text queries.
        images: Number of image queries.
        resamples: Number of bootstrap resamples of the photos for the intervals.
        timed: Maximum number of questions of each direction that were timed.
    """

    points: list[CurvePoint]
    default_candidates: dict[Direction, int]
    items: dict[Direction, int]
    texts: int
    images: int
    resamples: int
    timed: int
