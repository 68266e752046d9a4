import math
from dataclasses import replace

import pytest
import torch

from aladin_index.measure.curve_points import Draws, PhotoBootstrap, search_times
from aladin_index.measure.evaluate import EvaluationQueries
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import SearchAnswer, TookMs
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.graphs.threads import compute_threads, set_compute_threads
from aladin_network.scoring.bootstrap import paired_bootstrap
from aladin_network.scoring.metrics import Ranks
from aladin_network.types import NullProgress, Target

# Three photos with two, one and three captions, the captions in no order.
IMAGE_OF_TEXT = torch.tensor([0, 2, 1, 2, 0, 2])


def slow_percentiles(values: list[float]) -> tuple[float, float]:
    """The 2.5 and 97.5 percentiles, linear between neighbours."""
    ordered = sorted(values)
    found: list[float] = []
    for share in (0.025, 0.975):
        place = share * (len(ordered) - 1)
        low, part = math.floor(place), place - math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        found.append(ordered[low] * (1 - part) + ordered[high] * part)
    return found[0], found[1]


def test_against_photos_drawn_one_by_one() -> None:
    of_texts, of_images = [0.0, 100.0, 100.0, 0.0, 100.0, 0.0], [100.0, 0.0, 50.0]
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randint(3, (40, 3), generator=generator).tolist()
    texts: list[float] = []
    images: list[float] = []
    for photos in drawn:
        values = [
            value
            for photo in photos
            for value, own in zip(of_texts, IMAGE_OF_TEXT.tolist(), strict=True)
            if own == photo
        ]
        texts.append(sum(values) / len(values))
        images.append(sum(of_images[photo] for photo in photos) / 3)
    bootstrap = PhotoBootstrap(IMAGE_OF_TEXT, resamples=40, seed=3)
    text_draws = bootstrap.mean_of_texts(torch.tensor(of_texts, dtype=torch.float64))
    image_draws = bootstrap.mean_of_images(torch.tensor(of_images, dtype=torch.float64))
    assert text_draws.resampled.tolist() == pytest.approx(texts)
    assert text_draws.estimate() == pytest.approx((50.0, *slow_percentiles(texts)))
    assert image_draws.estimate() == pytest.approx((50.0, *slow_percentiles(images)))
    differences = [of_text - of_image for of_text, of_image in zip(texts, images, strict=True)]
    assert (text_draws - image_draws).estimate() == pytest.approx(
        (0.0, *slow_percentiles(differences))
    )


def test_a_difference_of_rsums_is_that_of_the_paired_bootstrap() -> None:
    random = torch.Generator().manual_seed(0)
    image_of_text = torch.randint(12, (60,), generator=random)
    image_of_text[:12] = torch.arange(12)  # every photo has a caption
    ours, theirs = (
        Ranks(
            torch.randint(12, (60,), generator=random), torch.randint(12, (12,), generator=random)
        )
        for _ in range(2)
    )
    bootstrap = PhotoBootstrap(image_of_text, resamples=200, seed=5)

    def rsum(ranks: Ranks) -> Draws:
        draws = [
            part
            for k in (1, 5, 10)
            for part in (
                bootstrap.mean_of_texts(100 * (ranks.text_to_image < k).double()),
                bootstrap.mean_of_images(100 * (ranks.image_to_text < k).double()),
            )
        ]
        total = draws[0]
        for part in draws[1:]:
            total = total + part
        return total

    estimate = (rsum(ours) - rsum(theirs)).estimate()
    expected = paired_bootstrap(ours, theirs, image_of_text, resamples=200, seed=5)
    assert estimate == pytest.approx(expected)
    assert estimate.low < estimate.value < estimate.high


def test_each_question_is_asked_with_all_numbers_before_the_next(
    tied: TwoStageSearcher, monkeypatch: pytest.MonkeyPatch, tied_queries: EvaluationQueries
) -> None:
    asked: list[tuple[int, int, int]] = []
    search = TwoStageSearcher.search
    questions = tied_queries.texts[:3]

    def recorded(
        self: TwoStageSearcher, query: Term, target: Target, options: SearchOptions
    ) -> SearchAnswer:
        number = options.candidates or 0
        asked.append((number, options.k, compute_threads()))
        result = search(self, query, target, options)
        # The question's number and that of the candidates are in the time.
        row = (len(asked) - 1) // 2
        took_ms = {"retrieve": 10.0 * row, "rerank": float(asked[-1][0]), "total": 1000.0}
        return replace(result, took_ms=TookMs(decode=500.0, encode=500.0, **took_ms))

    monkeypatch.setattr(TwoStageSearcher, "search", recorded)
    threads = compute_threads()
    set_compute_threads(2)
    try:
        times = search_times(tied, questions, "text", "images", [1, 15], NullProgress())
        assert compute_threads() == 2
    finally:
        set_compute_threads(threads)
    few, many = (1, 1, 1), (15, 10, 1)
    assert [sorted(asked[start : start + 2]) for start in (0, 2, 4)] == [[few, many]] * 3
    assert [each.median_ms for each in times] == pytest.approx([11.0, 25.0])
    assert [each.p95_ms for each in times] == pytest.approx([20.0, 34.0])
