"""What is known of two-stage search with several numbers of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from aladin.fusion import Direction
from index.curve.photo_bootstrap import Estimate
from index.curve.search_times import SearchTime

Rule = Literal["fitted", "papers"]
RULES: tuple[Rule, ...] = ("fitted", "papers")


class DirectionQuality(NamedTuple):
    """How one direction finds.

    Attributes:
        r1: R@1 in percent.
        r1_gain: R@1 less that of matching alone, in points, over the same draws of photos.
        agreement: share of the exhaustive order's top 10, by the same rule, that is in the top 10.
    """

    r1: Estimate
    r1_gain: Estimate
    agreement: float


class Quality(NamedTuple):
    """How both directions find.

    Attributes:
        text_to_image: how texts find images.
        image_to_text: how images find texts.
        rsum: sum of R@1, R@5 and R@10 of both.
        rsum_gain: rsum less that of matching alone, over the same draws of photos.
    """

    text_to_image: DirectionQuality
    image_to_text: DirectionQuality
    rsum: Estimate
    rsum_gain: Estimate


class SearchTimes(NamedTuple):
    """The time of a search in each direction."""

    text_to_image: SearchTime
    image_to_text: SearchTime

    @property
    def mean_ms(self) -> float:
        """The mean of both medians."""
        return (self.text_to_image.median_ms + self.image_to_text.median_ms) / 2


class CurvePoint(NamedTuple):
    """Two-stage search with one number of candidates.

    Attributes:
        candidates: handed to the second stage at a time.
        fitted: by the fusion that was fitted on validation.
        papers: by the alignment score alone, the papers' rule.
        times: with the fitted fusion; the rule makes no difference to them.
    """

    candidates: int
    fitted: Quality
    papers: Quality
    times: SearchTimes


@dataclass(frozen=True, kw_only=True)
class CandidateCurve:
    """Quality and time against the number of candidates.

    Attributes:
        points: from one candidate, which is matching alone, to all items, which is the
            exhaustive order: of the fused score, and of the alignment alone.
        default_candidates: of a search that does not say, by direction.
        items: that compete, by direction: images for a text, texts for an image.
        texts: that asked.
        images: that asked.
        resamples: of the photos, for the intervals.
        timed: number of questions of each direction that were timed, at most.
    """

    points: list[CurvePoint]
    default_candidates: dict[Direction, int]
    items: dict[Direction, int]
    texts: int
    images: int
    resamples: int
    timed: int
