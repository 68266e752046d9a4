"""Bootstrap of differences of rsum, compared with a count of every draw and with simulations."""

from __future__ import annotations

import statistics

import pytest
import torch
from torch import Tensor

from aladin_network.scoring.bootstrap import (
    GainsOfPhotos,
    QueryGains,
    ResampledDifference,
    paired_bootstrap,
    resample_gains,
    resampled_difference,
    simultaneous_intervals,
)
from aladin_network.scoring.metrics import Ranks


def slow_bootstrap(
    ours: list[Ranks], theirs: list[Ranks], image_of_text: Tensor, resamples: int, seed: int
) -> tuple[float, list[float], list[float], float]:
    """Draw photos and weights of runs as the function does; count every draw's rsums one by one."""
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

    def gains(photos: list[int]) -> list[float]:
        return [rsum(a, photos) - rsum(b, photos) for a, b in zip(ours, theirs, strict=True)]

    all_photos = list(range(len(captioned)))
    generator = torch.Generator().manual_seed(seed)
    photos = torch.randint(len(captioned), (resamples, len(captioned)), generator=generator)
    weights = torch.randn(resamples, len(ours), generator=generator, dtype=torch.float64).tolist()
    of_photos = [statistics.fmean(gains(each)) for each in photos.tolist()]
    of_runs = gains(all_photos)
    mean = statistics.fmean(of_runs)
    variance = statistics.variance(of_runs) if len(of_runs) > 1 else 0.0
    scale = max(1, len(of_runs) * (len(of_runs) - 1)) ** 0.5
    of_seeds = [
        sum(w * (each - mean) for w, each in zip(row, of_runs, strict=True)) / scale
        for row in weights
    ]
    return mean, of_photos, of_seeds, variance


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
    found = resampled_difference(ours, theirs, image_of_text, resamples=60, seed=7)
    mean, of_photos, of_seeds, variance = slow_bootstrap(ours, theirs, image_of_text, 60, seed=7)
    assert found.observed == pytest.approx(mean)
    assert found.of_photos.tolist() == pytest.approx(of_photos)
    assert found.of_seeds.tolist() == pytest.approx(of_seeds)
    assert (found.runs, found.seed_variance) == (runs, pytest.approx(variance))
    if runs == 1:
        assert found.interval == paired_bootstrap(ours[0], theirs[0], image_of_text, 60, 7)


@pytest.mark.parametrize(("runs", "t"), [(2, 12.71), (5, 2.776)])
def test_the_interval_of_few_runs_is_that_of_students_t(runs: int, t: float) -> None:
    """So many photos that drawing them hardly counts beside the spread of the runs."""
    found = torch.arange(runs).unsqueeze(1) <= torch.arange(runs).repeat(100)  # (runs, photos)
    none = Ranks(torch.full((100 * runs,), 50), torch.full((100 * runs,), 50))
    ours = [Ranks(torch.where(each, 50, 0), none.image_to_text) for each in found]
    photos = torch.arange(100 * runs)
    interval = resampled_difference(ours, [none] * runs, photos, resamples=20_000).interval
    of_run = torch.arange(float(runs)) * 300 / runs  # rsum: 300 times the share of texts
    half = t * float(of_run.std()) / runs**0.5
    assert (interval.high - interval.low) / 2 == pytest.approx(half, rel=0.08)


def normal_differences(truths: list[float], seed: int) -> list[ResampledDifference]:
    """Differences with standard error 1 of made-up experiments, and their resamples."""
    generator = torch.Generator().manual_seed(seed)
    observed = torch.tensor(truths) + torch.randn(len(truths), generator=generator)
    drawn = observed.unsqueeze(1) + torch.randn(len(truths), 1000, generator=generator)
    return [
        ResampledDifference(float(each), resamples.double(), torch.zeros(1000).double(), 1, 0.0)
        for each, resamples in zip(observed, drawn, strict=True)
    ]


def made_up_experiment(
    runs: int, spreads: list[float], generator: torch.Generator, unit: float = 1.0
) -> list[ResampledDifference]:
    """Recipes that all equal their baseline; photos and runs vary, the mean over photos by 1.

    `spreads` are standard deviations of the difference between runs, of which the baseline, common
    to all, makes half the variance.
    """

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * unit / 2**0.5

    photos = 30
    baseline_runs = draw(runs) * statistics.fmean(spreads)
    baseline_photos = draw(photos) * photos**0.5
    differences: list[ResampledDifference] = []
    for spread in spreads:
        of_runs, of_photos = draw(runs) * spread - baseline_runs, draw(photos) * photos**0.5
        gains = [(of_photos - baseline_photos + each) / 2 for each in of_runs]
        pairs = [QueryGains(each, each) for each in gains]
        fold = GainsOfPhotos(pairs, torch.arange(photos))
        differences.append(resample_gains([fold], resamples=200))
    return differences


@pytest.mark.parametrize(
    ("runs", "spreads", "least"),
    [
        (3, [2.0], 0.93),
        (3, [1.0] * 4 + [4.0] * 4, 0.88),  # pooled variances are wrong for both halves
    ],
)
def test_intervals_hold_together_for_few_runs(
    runs: int, spreads: list[float], least: float
) -> None:
    generator, held = torch.Generator().manual_seed(runs), 0
    for _ in range(50):
        found = simultaneous_intervals(made_up_experiment(runs, spreads, generator))
        held += all(each.interval.low <= 0 <= each.interval.high for each in found)
    assert held / 50 >= least


def test_variances_of_seeds_are_pooled_in_each_unit_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    small = made_up_experiment(3, [2.0] * 4, generator, unit=0.001)
    large = made_up_experiment(3, [2.0] * 4, generator)
    apart = simultaneous_intervals(small + large, ["md"] * 4 + ["rsum"] * 4)
    mixed = simultaneous_intervals(small + large)
    widths = [[each.interval.high - each.interval.low for each in of[:4]] for of in (apart, mixed)]
    assert max(widths[0]) < 0.03 < 1 < min(widths[1])


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


def test_folds_draw_their_own_photos_and_all_runs_count_alike() -> None:
    """Three runs: two of a fold of four photos, one of a fold of three; each draw counted by hand.

    In a fold photos are drawn as without others; the mean is over the runs, not over the folds.
    """
    generator = torch.Generator().manual_seed(5)

    def gains(photos: int) -> QueryGains:
        values = torch.randn(2, photos, generator=generator, dtype=torch.float64)
        return QueryGains(*values)

    first, second = [gains(4), gains(4)], [gains(3)]
    folds = [GainsOfPhotos(first, torch.arange(4)), GainsOfPhotos(second, torch.arange(3))]
    found = resample_gains(folds, resamples=50, seed=3)
    of_runs = [float(each.text_to_image.mean() + each.image_to_text.mean()) for each in first]
    of_runs += [float(each.text_to_image.mean() + each.image_to_text.mean()) for each in second]
    assert found.observed == pytest.approx(statistics.fmean(of_runs))
    assert (found.runs, found.seed_variance) == (3, pytest.approx(statistics.variance(of_runs)))
    draws = torch.Generator().manual_seed(3)
    of_first = torch.randint(4, (50, 4), generator=draws).tolist()
    of_second = torch.randint(3, (50, 3), generator=draws).tolist()
    expected = [
        statistics.fmean(
            float(each.text_to_image[photos].mean() + each.image_to_text[photos].mean())
            for runs, photos in ((first, one), (second, other))
            for each in runs
        )
        for one, other in zip(of_first, of_second, strict=True)
    ]
    assert found.of_photos.tolist() == pytest.approx(expected)
    # Twice as many photos, in two folds, halve the variance that is due to them.
    many = [gains(400) for _ in range(2)]
    alone = resample_gains([GainsOfPhotos(many[:1], torch.arange(400))])
    both = resample_gains([GainsOfPhotos([each], torch.arange(400)) for each in many])
    assert float(both.of_photos.var() / alone.of_photos.var()) == pytest.approx(0.5, abs=0.1)


def test_intervals_of_folds_hold_in_95_of_100_experiments() -> None:
    """Seven folds, two runs each; photos and seeds vary, and both runs of a fold see its photos."""
    generator, held, photos = torch.Generator().manual_seed(2), 0, 60
    for _ in range(100):
        folds: list[GainsOfPhotos] = []
        for _ in range(7):
            of_photos = torch.randn(photos, generator=generator, dtype=torch.float64) * photos**0.5
            of_runs = torch.randn(2, generator=generator, dtype=torch.float64) * 2
            pairs = [QueryGains(each, each) for each in (of_photos + of_runs[:, None]) / 2]
            folds.append(GainsOfPhotos(pairs, torch.arange(photos)))
        interval = resample_gains(folds, resamples=300).interval
        held += interval.low <= 0 <= interval.high
    assert held >= 91
