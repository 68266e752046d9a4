"""What runs are compared by: gains of queries add up to the measure, and vary as it does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.scoring.bootstrap import resample_gains
from aladin_network.scoring.metrics import retrieval_ranks, summarize
from aladin_network.scoring.separation import mean_difference, separation_of_queries
from aladin_training.comparison.evaluation import RunEvaluation
from aladin_training.comparison.measures import MEASURES, Measure, gains, has_measure

PHOTOS, CAPTIONS = 60, 3
OWNERS = torch.arange(PHOTOS).repeat_interleave(CAPTIONS)
OWN = torch.arange(PHOTOS).unsqueeze(1) == OWNERS


def scores(seed: int, ahead: float) -> Tensor:
    """Random scores; photos and captions differ in how near they are to all others."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(PHOTOS, PHOTOS * CAPTIONS, generator=generator, dtype=torch.float64)
    hubs = torch.randn(PHOTOS, 1, generator=generator, dtype=torch.float64)
    return 0.1 * noise + 0.1 * hubs + 0.05 * hubs[OWNERS].T + ahead * OWN


def evaluated(of: Tensor) -> RunEvaluation:
    return RunEvaluation(
        model_id="",
        split="val",
        ranks={"matching": retrieval_ranks(of, OWNERS), "fused": retrieval_ranks(of, OWNERS)},
        mean_difference={},
        cross_rank={},
        histograms={},
        image_of_text=OWNERS,
        cross_ranks={},
        separation={"matching": separation_of_queries(of, OWNERS)},
        queries="",
    )


def measured(measure: Measure, of: Tensor) -> float:
    """The measure of one run, from its scores."""
    metrics = summarize(retrieval_ranks(of, OWNERS))
    if measure == "rsum":
        return metrics.rsum
    if measure == "r1":
        return (metrics.text_to_image.r1 + metrics.image_to_text.r1) / 2
    if measure == "md":
        return mean_difference(of, OWNERS)
    others = of.masked_fill(OWN, -torch.inf)
    own = of[OWNERS, torch.arange(len(OWNERS))]
    by_caption = (own - others.amax(dim=0)).mean()
    by_photo = (own.view(PHOTOS, CAPTIONS).mean(dim=1) - others.amax(dim=1)).mean()
    return float(by_caption + by_photo) / 2


@pytest.mark.parametrize("measure", MEASURES)
def test_the_observed_difference_is_that_of_the_two_measures(measure: Measure) -> None:
    ours, theirs = scores(1, 0.4), scores(2, 0.3)
    of_queries = gains(measure, evaluated(ours), "matching", evaluated(theirs), "matching")
    found = resample_gains([of_queries], OWNERS)
    assert found.observed == pytest.approx(measured(measure, ours) - measured(measure, theirs))


def test_the_mean_difference_varies_as_if_photos_were_drawn_as_candidates_too() -> None:
    ours, theirs = scores(1, 0.4), scores(2, 0.3)
    of_queries = gains("md", evaluated(ours), "matching", evaluated(theirs), "matching")
    drawn = resample_gains([of_queries], OWNERS, resamples=300).of_photos
    # The same draws, and the mean difference of the matrix that each of them makes.
    generator = torch.Generator().manual_seed(0)
    exact: list[float] = []
    for photos in torch.randint(PHOTOS, (300, PHOTOS), generator=generator):
        times = torch.bincount(photos, minlength=PHOTOS).double()
        pairs = times.unsqueeze(1) * times[OWNERS]
        apart = ours - theirs
        others = (pairs * apart)[~OWN].sum() / pairs[~OWN].sum()
        own = (times * apart.masked_fill(~OWN, 0).sum(dim=1)).sum() / (CAPTIONS * PHOTOS)
        exact.append(float(own - others))
    both = torch.stack([drawn, torch.tensor(exact, dtype=torch.float64)])
    assert torch.corrcoef(both)[0, 1] > 0.98
    assert float(both[0].std() / both[1].std()) == pytest.approx(1, abs=0.1)


def test_rankings_of_several_heads_have_no_separation() -> None:
    evaluation = evaluated(scores(1, 0.4))
    has = {
        score: [each for each in MEASURES if has_measure(evaluation, score, each)]
        for score in ("matching", "fused", "attention")
    }
    assert has == {"matching": list(MEASURES), "fused": ["rsum", "r1"], "attention": []}
