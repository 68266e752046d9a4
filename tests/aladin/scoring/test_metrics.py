"""Retrieval metrics: hand-worked cases, ties, and a sort as the slow reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.scoring.metrics import (
    Ranks,
    folded_metrics,
    paired_bootstrap,
    paired_bootstrap_over_seeds,
    retrieval_metrics,
    retrieval_ranks,
    summarize,
)

# Three images with 2, 1 and 3 captions.
IMAGE_OF_TEXT = torch.tensor([0, 0, 1, 2, 2, 2])


def reference_ranks(scores: Tensor, image_of_text: Tensor) -> Ranks:
    """Rank by sorting, the right answers last among equals."""
    of_texts: list[int] = []
    of_images: list[int] = []
    n_images, n_texts = scores.shape
    for text in range(n_texts):
        own = int(image_of_text[text])
        order = sorted(range(n_images), key=lambda i: (-float(scores[i, text]), i == own))
        of_texts.append(order.index(own))
    for image in range(n_images):
        own_texts = [t for t in range(n_texts) if int(image_of_text[t]) == image]
        if own_texts:
            wrong = [t for t in range(n_texts) if t not in own_texts]
            best = max(float(scores[image, t]) for t in own_texts)
            of_images.append(sum(float(scores[image, t]) >= best for t in wrong))
    return Ranks(torch.tensor(of_texts), torch.tensor(of_images))


def test_worked_by_hand() -> None:
    scores = torch.tensor(
        [
            [0.9, 0.2, 0.5, 0.1, 0.6, 0.3],
            [0.8, 0.7, 0.4, 0.2, 0.7, 0.1],
            [0.1, 0.3, 0.6, 0.5, 0.2, 0.4],
        ]
    )
    ranks = retrieval_ranks(scores, IMAGE_OF_TEXT)
    assert ranks.text_to_image.tolist() == [0, 2, 2, 0, 2, 0]
    # Image 0: its caption 0 leads. Image 1: .4 is behind .8, .7 and .7. Image 2: .6 leads .5.
    assert ranks.image_to_text.tolist() == [0, 3, 1]
    metrics = summarize(ranks)
    assert metrics.text_to_image.r1 == pytest.approx(50)
    assert metrics.text_to_image[1:3] == (100, 100)
    assert metrics.text_to_image.median_rank == 2  # ranks 0 0 0 2 2 2: floor of 1, from 1
    assert metrics.text_to_image.mean_rank == pytest.approx(2)
    assert metrics.image_to_text.r1 == pytest.approx(100 / 3)
    assert metrics.image_to_text.mean_rank == pytest.approx(7 / 3)
    assert metrics.rsum == pytest.approx(50 + 100 + 100 + 100 / 3 + 100 + 100)


@pytest.mark.parametrize("levels", [3, 10, 10**6])
def test_equals_the_sort_with_many_ties_and_with_none(levels: int) -> None:
    generator = torch.Generator().manual_seed(levels)
    scores = torch.randint(levels, (8, 20), generator=generator) / levels
    image_of_text = torch.randint(8, (20,), generator=generator)
    ranks = retrieval_ranks(scores, image_of_text)
    expected = reference_ranks(scores, image_of_text)
    assert torch.equal(ranks.text_to_image, expected.text_to_image)
    assert torch.equal(ranks.image_to_text, expected.image_to_text)


def test_perfect_scores() -> None:
    scores = (torch.arange(3).unsqueeze(1) == IMAGE_OF_TEXT).float()
    metrics = retrieval_metrics(scores, IMAGE_OF_TEXT)
    assert metrics.rsum == 600
    assert metrics.text_to_image.median_rank == metrics.image_to_text.mean_rank == 1


def test_ties_count_against_us() -> None:
    metrics = retrieval_metrics(torch.zeros(20, 20), torch.arange(20))
    assert metrics.rsum == 0
    assert metrics.text_to_image.median_rank == 20


def test_captions_of_the_same_image_do_not_outrank_each_other() -> None:
    ranks = retrieval_ranks(torch.ones(1, 5), torch.zeros(5, dtype=torch.long))
    assert ranks.image_to_text.tolist() == [0]
    assert ranks.text_to_image.tolist() == [0] * 5


def test_scores_that_are_no_numbers_count_against_us() -> None:
    ranks = retrieval_ranks(torch.full((3, 6), float("nan")), IMAGE_OF_TEXT)
    assert ranks.text_to_image.tolist() == [2] * 6
    assert ranks.image_to_text.tolist() == [4, 5, 3]


def test_more_images_than_one_block() -> None:
    scores = torch.rand(600, 30, generator=torch.Generator().manual_seed(3))
    image_of_text = torch.arange(30) * 20
    ranks = retrieval_ranks(scores, image_of_text)
    expected = reference_ranks(scores, image_of_text)
    assert torch.equal(ranks.text_to_image, expected.text_to_image)
    assert torch.equal(ranks.image_to_text, expected.image_to_text)


def test_images_without_captions_are_candidates_but_no_queries() -> None:
    scores = torch.tensor([[0.1, 0.2], [0.3, 0.1], [0.2, 0.3]])
    ranks = retrieval_ranks(scores, torch.tensor([1, 0]))
    assert ranks.text_to_image.tolist() == [0, 1]
    assert ranks.image_to_text.shape == (2,)


def test_permuting_images_with_their_captions_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.rand(3, 6, generator=generator)
    images, texts = torch.tensor([2, 0, 1]), torch.tensor([5, 3, 0, 1, 4, 2])
    where = torch.empty(3, dtype=torch.long)
    where[images] = torch.arange(3)
    permuted = retrieval_metrics(scores[images][:, texts], where[IMAGE_OF_TEXT[texts]])
    assert permuted == retrieval_metrics(scores, IMAGE_OF_TEXT)


def test_folds_rank_each_block_among_itself() -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.rand(6, 12, generator=generator)
    image_of_text = torch.arange(6).repeat_interleave(2)
    blocks = [
        retrieval_metrics(scores[i : i + 2, 2 * i : 2 * i + 4], torch.tensor([0, 0, 1, 1]))
        for i in (0, 2, 4)
    ]
    folded = folded_metrics(scores, image_of_text, folds=3)
    assert folded.rsum == pytest.approx(sum(block.rsum for block in blocks) / 3)
    assert folded.image_to_text.mean_rank == pytest.approx(
        sum(block.image_to_text.mean_rank for block in blocks) / 3
    )
    assert folded_metrics(scores, image_of_text, folds=1).rsum == pytest.approx(
        retrieval_metrics(scores, image_of_text).rsum
    )


def test_a_block_without_a_text_has_no_share_in_the_mean() -> None:
    scores = torch.rand(6, 4, generator=torch.Generator().manual_seed(3))
    image_of_text = torch.tensor([0, 0, 1, 5])  # none of the images 2 to 4
    folded = folded_metrics(scores, image_of_text, folds=3)
    first = retrieval_metrics(scores[:2, :3], torch.tensor([0, 0, 1]))
    last = retrieval_metrics(scores[4:, 3:], torch.tensor([1]))
    assert folded.rsum == pytest.approx((first.rsum + last.rsum) / 2)


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

    generator = torch.Generator().manual_seed(seed)
    photos = torch.randint(len(captioned), (resamples, len(captioned)), generator=generator)
    runs = torch.randint(len(ours), (resamples, len(ours)), generator=generator)
    drawn = [difference(*each) for each in zip(photos.tolist(), runs.tolist(), strict=True)]
    low, high = torch.tensor(drawn).double().quantile(torch.tensor([0.025, 0.975]).double())
    all_photos, all_runs = list(range(len(captioned))), list(range(len(ours)))
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
    interval = paired_bootstrap_over_seeds(ours, theirs, image_of_text, resamples=60, seed=7)
    expected = slow_bootstrap(ours, theirs, image_of_text, resamples=60, seed=7)
    assert interval == pytest.approx(expected, abs=1e-4)
    if runs == 1:
        assert interval == paired_bootstrap(ours[0], theirs[0], image_of_text, 60, 7)


def test_runs_that_differ_widen_the_interval_and_runs_that_do_not_leave_it() -> None:
    image_of_text = torch.arange(300)
    ours, theirs = random_runs(1, 300, 300, seed=3) * 3, random_runs(1, 300, 300, seed=4) * 3
    one = paired_bootstrap(ours[0], theirs[0], image_of_text)
    assert paired_bootstrap_over_seeds(ours, theirs, image_of_text) == pytest.approx(one)
    # A third run that finds nothing: whether it is drawn matters more than the photos.
    nothing = Ranks(torch.full((300,), 50), torch.full((300,), 50))
    mixed = paired_bootstrap_over_seeds([*ours[:2], nothing], theirs, image_of_text)
    assert mixed.high - mixed.low > 3 * (one.high - one.low)


def test_runs_are_paired() -> None:
    ours, theirs = random_runs(2, 4, 4, seed=5), random_runs(3, 4, 4, seed=6)
    with pytest.raises(ValueError, match="zip"):
        paired_bootstrap_over_seeds(ours, theirs, torch.arange(4))


def test_ties_may_count_for_us() -> None:
    scores = torch.tensor([[0.5, 0.5], [0.5, 0.9]])
    image_of_text = torch.tensor([0, 1])
    against = retrieval_ranks(scores, image_of_text)
    in_favour = retrieval_ranks(scores, image_of_text, ties="for")
    assert against.text_to_image.tolist() == [1, 0]
    assert against.image_to_text.tolist() == [1, 0]
    assert in_favour.text_to_image.tolist() == [0, 0]
    assert in_favour.image_to_text.tolist() == [0, 0]
    assert retrieval_metrics(torch.ones(3, 3), torch.arange(3), ties="for").rsum == 600
    unknown = torch.full((2, 2), float("nan"))
    assert retrieval_ranks(unknown, image_of_text, ties="for").text_to_image.tolist() == [1, 1]
