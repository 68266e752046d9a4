"""Bootstrap of differences of rsum, compared with a count of every draw and with simulations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.scoring.bootstrap import (
    ResampledDifference,
    paired_bootstrap,
    resampled_difference,
    simultaneous_intervals,
)
from aladin_network.scoring.metrics import Ranks, retrieval_ranks, summarize


def test_the_bootstrap_gives_the_observed_difference_and_an_interval_around_it() -> None:
    generator = torch.Generator().manual_seed(4)
    image_of_text = torch.arange(200).repeat_interleave(5)
    right = (torch.arange(200).unsqueeze(1) == image_of_text).float()
    noise = torch.randn(2, 200, 1000, generator=generator)
    good = retrieval_ranks(right + 0.35 * noise[0], image_of_text)
    bad = retrieval_ranks(right + 0.5 * noise[1], image_of_text)
    interval = paired_bootstrap(good, bad, image_of_text)
    assert interval.difference == pytest.approx(summarize(good).rsum - summarize(bad).rsum)
    assert 0 < interval.low < interval.difference < interval.high
    again = paired_bootstrap(good, bad, image_of_text)
    assert again == interval
    same = paired_bootstrap(bad, bad, image_of_text)
    assert same == (0.0, 0.0, 0.0)


def test_the_bootstrap_interval_has_the_width_of_its_standard_error() -> None:
    # One caption a photo, hits at rank 0 or none: the difference is a mean of +-1 and 0.
    generator = torch.Generator().manual_seed(5)
    hit = torch.randint(2, (2, 400), generator=generator) * 1000
    ours, theirs = Ranks(hit[0], torch.zeros(400).long()), Ranks(hit[1], torch.zeros(400).long())
    interval = paired_bootstrap(ours, theirs, torch.arange(400), resamples=4000)
    gains = 300 * ((hit[0] == 0).double() - (hit[1] == 0).double())
    error = float(gains.std() / 400**0.5)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.08)


def slow_bootstrap(
    ours: list[Ranks], theirs: list[Ranks], image_of_text: Tensor, resamples: int, seed: int
) -> tuple[float, float, float]:
    """Draw photos, then runs, as the function does; count every draw's rsums one by one."""
    captioned = sorted(set(image_of_text.tolist()))
    texts_of = [(image_of_text == image).nonzero()[:, 0].tolist() for image in captioned]

    def rsum(ranks: Ranks, photos: list[int]) -> float:
        of_texts = [int(ranks.text_to_image[t]) for photo in photos for t in texts_of[photo]]
        of_images = [int(ranks.image_to_text[photo]) for photo in photos]
        return sum(
            100 * sum(rank < k for rank in each) / len(each)
            for each in (of_texts, of_images)
            for k in (1, 5, 10)
        )

    def difference(photos: list[int], runs: list[int]) -> float:
        gains = [rsum(ours[run], photos) - rsum(theirs[run], photos) for run in runs]
        return sum(gains) / len(gains)

    def resample(photos: list[int], runs: list[int]) -> float:
        of_photos = difference(photos, all_runs)
        of_seeds = difference(photos, runs) - of_photos
        return of_photos + of_seeds * (len(runs) / max(1, len(runs) - 1)) ** 0.5

    all_photos, all_runs = list(range(len(captioned))), list(range(len(ours)))

    generator = torch.Generator().manual_seed(seed)
    photos = torch.randint(len(captioned), (resamples, len(captioned)), generator=generator)
    runs = torch.randint(len(ours), (resamples, len(ours)), generator=generator)
    drawn = [resample(*each) for each in zip(photos.tolist(), runs.tolist(), strict=True)]
    low, high = torch.tensor(drawn).double().quantile(torch.tensor([0.025, 0.975]).double())
    return difference(all_photos, all_runs), float(low), float(high)


def random_runs(count: int, n_texts: int, n_images: int, seed: int) -> list[Ranks]:
    """Ranks below 15 of several runs."""
    generator = torch.Generator().manual_seed(seed)
    return [
        Ranks(
            torch.randint(15, (n_texts,), generator=generator),
            torch.randint(15, (n_images,), generator=generator),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("runs", [1, 3])
def test_the_bootstrap_over_seeds_equals_a_count_of_every_draw(runs: int) -> None:
    image_of_text = torch.tensor([0, 0, 1, 3, 3, 3, 4, 6, 6])  # images 2 and 5 have no text
    ours, theirs = random_runs(runs, 9, 5, seed=1), random_runs(runs, 9, 5, seed=2)
    interval = resampled_difference(ours, theirs, image_of_text, resamples=60, seed=7).interval
    expected = slow_bootstrap(ours, theirs, image_of_text, resamples=60, seed=7)
    assert interval == pytest.approx(expected, abs=1e-4)
    if runs == 1:
        assert interval == paired_bootstrap(ours[0], theirs[0], image_of_text, 60, 7)


def test_runs_that_differ_widen_the_interval_and_runs_that_do_not_leave_it() -> None:
    image_of_text = torch.arange(300)
    ours, theirs = random_runs(1, 300, 300, seed=3) * 3, random_runs(1, 300, 300, seed=4) * 3
    one = paired_bootstrap(ours[0], theirs[0], image_of_text)
    assert resampled_difference(ours, theirs, image_of_text).interval == pytest.approx(one)
    # A third run that finds nothing: whether it is drawn matters more than the photos.
    nothing = Ranks(torch.full((300,), 50), torch.full((300,), 50))
    mixed = resampled_difference([*ours[:2], nothing], theirs, image_of_text).interval
    assert mixed.high - mixed.low > 3 * (one.high - one.low)


def test_means_of_few_runs_vary_by_their_standard_error() -> None:
    """So many photos that drawing them hardly counts beside the spread of five runs."""
    found = torch.arange(5).unsqueeze(1) <= torch.arange(5).repeat(100)  # (runs, photos)
    none = Ranks(torch.full((500,), 50), torch.full((500,), 50))
    ours = [Ranks(torch.where(each, 50, 0), none.image_to_text) for each in found]
    drawn = resampled_difference(ours, [none] * 5, torch.arange(500), resamples=4000).drawn
    of_run = torch.arange(5.0) * 60  # rsum: 300 times the share of texts, run by run
    assert float(drawn.std()) == pytest.approx(float(of_run.std()) / 5**0.5, rel=0.05)


def test_runs_are_paired() -> None:
    ours, theirs = random_runs(2, 4, 4, seed=5), random_runs(3, 4, 4, seed=6)
    with pytest.raises(ValueError, match="zip"):
        resampled_difference(ours, theirs, torch.arange(4))


def normal_differences(truths: list[float], seed: int) -> list[ResampledDifference]:
    """Differences with standard error 1 of made-up experiments, and their resamples."""
    generator = torch.Generator().manual_seed(seed)
    observed = torch.tensor(truths) + torch.randn(len(truths), generator=generator)
    drawn = observed.unsqueeze(1) + torch.randn(len(truths), 1000, generator=generator)
    return [
        ResampledDifference(float(each), resamples.double())
        for each, resamples in zip(observed, drawn, strict=True)
    ]


def test_all_intervals_hold_together_in_95_of_100_experiments() -> None:
    truths, held, shown = [0.0, 1.0, -2.0, 0.5, 3.0, 0.0], 0, 0
    for experiment in range(300):
        found = simultaneous_intervals(normal_differences(truths, experiment))
        held += all(
            each.interval.low <= truth <= each.interval.high
            for each, truth in zip(found, truths, strict=True)
        )
    assert 0.91 <= held / 300 <= 0.98
    # The smallest effect, as a truth, is shown in 80 of 100 experiments.
    smallest = simultaneous_intervals(normal_differences(truths, 0))[0].smallest_effect
    for experiment in range(300):
        truths[0] = smallest
        interval = simultaneous_intervals(normal_differences(truths, experiment))[0].interval
        shown += interval.low > 0 or interval.high < 0
    assert 0.74 <= shown / 300 <= 0.86


def test_one_difference_has_the_usual_interval_and_more_have_wider_ones() -> None:
    differences = normal_differences([0.0] * 8, seed=1)
    (alone,) = simultaneous_intervals(differences[:1])
    plain = differences[0].interval
    assert alone.interval == pytest.approx(plain, abs=0.2)
    half = alone.interval.high - alone.interval.difference
    assert alone.smallest_effect == pytest.approx(half * (1.96 + 0.8416) / 1.96, rel=0.05)
    together = simultaneous_intervals(differences)[0].interval
    assert together.high - together.low > 1.2 * (plain.high - plain.low)


def test_equal_systems_are_a_point_and_change_nothing_else() -> None:
    image_of_text = torch.arange(50)
    ours, theirs = random_runs(2, 50, 50, seed=3), random_runs(2, 50, 50, seed=4)
    real = resampled_difference(ours, theirs, image_of_text)
    same = resampled_difference(ours, ours, image_of_text)
    first, second = simultaneous_intervals([real, same])
    assert second.interval == (0.0, 0.0, 0.0)
    assert second.smallest_effect == 0.0
    (alone,) = simultaneous_intervals([real])
    assert first.interval == pytest.approx(alone.interval)
    assert first.smallest_effect == pytest.approx(alone.smallest_effect)
