"""Evaluations of runs: stored, read back for the same weights and split, counted and compared."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from aladin_network.scoring.bootstrap import GainsOfPhotos, resample_gains
from aladin_network.scoring.metrics import retrieval_ranks, summarize
from aladin_network.scoring.separation import mean_difference, separation_of_queries
from aladin_training.comparison.evaluation import (
    BINS,
    RunEvaluation,
    finished_evaluation,
    load_evaluation,
    score_histogram,
)
from aladin_training.comparison.measures import MEASURES, Measure, gains, has_measure
from aladin_training.comparison.plan import ComparisonPlan, PlannedRun
from tests.training.comparison.conftest import FinishRun

TEXT_RANKS, IMAGE_RANKS = [0, 4, 9, 10, 0, 0, 2, 30], [0, 0, 5, 10]


@pytest.fixture
def run(plan: ComparisonPlan) -> PlannedRun:
    return plan.runs()[0]


def plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def test_everything_comes_back(finish_run: FinishRun, run: PlannedRun) -> None:
    saved = finish_run(run, TEXT_RANKS, IMAGE_RANKS)
    loaded = load_evaluation(run.folder, "val")
    assert plain(loaded) == plain(saved)
    matching = json.loads((run.folder / "evaluation.json").read_text())["metrics"]["matching"]
    # Of eight captions three are at rank 1, five below 5, six below 10; of four photos 2, 2, 3.
    assert matching["text_to_image"]["r1"] == 37.5
    assert matching["rsum"] == 37.5 + 62.5 + 75 + 50 + 50 + 75


def test_other_weights_split_or_version_are_no_evaluation_of_the_run(
    finish_run: FinishRun, run: PlannedRun
) -> None:
    assert load_evaluation(run.folder, "val") is None
    finish_run(run, TEXT_RANKS, IMAGE_RANKS)
    assert load_evaluation(run.folder, "test") is None
    path = run.folder / "evaluation.json"
    text = path.read_text()
    path.write_text(text.replace('"schema_version": 1', '"schema_version": 0'))
    assert load_evaluation(run.folder, "val") is None
    path.write_text(text)
    assert load_evaluation(run.folder, "val") is not None
    save_file({"weight": torch.tensor([99])}, run.folder / "checkpoint" / "model.safetensors")
    assert load_evaluation(run.folder, "val") is None


def test_a_report_needs_no_weights(finish_run: FinishRun, run: PlannedRun) -> None:
    """Hundreds of runs fill a disk: their weights may be deleted once they are evaluated."""
    saved = finish_run(run, TEXT_RANKS, IMAGE_RANKS)
    (run.folder / "checkpoint" / "model.safetensors").unlink()
    assert plain(finished_evaluation(run, "val")) == plain(saved)
    assert finished_evaluation(run, "test") is None


def test_every_pair_is_counted_once_in_its_own_bin() -> None:
    scores, owners = torch.tensor([[1.0, 0.75, -1.0], [-0.5, 0.1, 0.2]]), torch.tensor([0, 0, 1])
    expected = {
        "positive": [1.0, 0.75, 0.2],
        "negative": [-1.0, -0.5, 0.1],
        "hardest": [-0.5, 0.1, -1.0, -1.0, 0.1],  # of the three texts, then of the two photos
    }
    histogram = score_histogram(scores, owners)
    low, width = histogram.low, histogram.high - histogram.low
    assert len(histogram.edges()) == BINS + 1
    for kind, values in expected.items():
        counts = [0] * BINS
        for value in values:
            counts[min(int((value - low) / width * BINS + 1e-6), BINS - 1)] += 1
        assert getattr(histogram, kind).tolist() == counts
    # Equal scores, and queries without a negative.
    equal = score_histogram(torch.zeros(2, 2), torch.tensor([0, 1]))
    assert equal.high > equal.low
    assert not score_histogram(scores[:1, :2], owners[:2]).negative.any()


PHOTOS, CAPTIONS = 60, 3
OWNERS = torch.arange(PHOTOS).repeat_interleave(CAPTIONS)
OWN = torch.arange(PHOTOS).unsqueeze(1) == OWNERS


def random_scores(seed: int, ahead: float) -> Tensor:
    """Random scores; photos and captions differ in how near they are to all others."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(PHOTOS, PHOTOS * CAPTIONS, generator=generator, dtype=torch.float64)
    hubs = torch.randn(PHOTOS, 1, generator=generator, dtype=torch.float64)
    return 0.1 * noise + 0.1 * hubs + 0.05 * hubs[OWNERS].T + ahead * OWN


OURS, THEIRS = random_scores(1, 0.4), random_scores(2, 0.3)


def evaluated(of: Tensor) -> RunEvaluation:
    ranks = retrieval_ranks(of, OWNERS)
    return RunEvaluation(
        model_id="",
        split="val",
        ranks={"matching": ranks, "fused": ranks},
        mean_difference={},
        cross_rank={},
        histograms={},
        image_of_text=OWNERS,
        cross_ranks={},
        separation={"matching": separation_of_queries(of, OWNERS)},
        queries="",
    )


def measured(measure: Measure, of: Tensor) -> float:
    metrics = summarize(retrieval_ranks(of, OWNERS))
    if measure == "rsum":
        return metrics.rsum
    if measure == "r1":
        return (metrics.text_to_image.r1 + metrics.image_to_text.r1) / 2
    if measure == "r1_r5":
        return sum(each.r1 + each.r5 for each in (metrics.text_to_image, metrics.image_to_text))
    return mean_difference(of, OWNERS)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_observed_difference_is_that_of_the_two_measures(measure: Measure) -> None:
    of_queries = gains(measure, evaluated(OURS), "matching", evaluated(THEIRS), "matching")
    found = resample_gains([GainsOfPhotos([of_queries], OWNERS)])
    assert found.observed == pytest.approx(measured(measure, OURS) - measured(measure, THEIRS))


def test_the_mean_difference_varies_as_if_photos_were_drawn_as_candidates_too() -> None:
    of_queries = gains("md", evaluated(OURS), "matching", evaluated(THEIRS), "matching")
    drawn = resample_gains([GainsOfPhotos([of_queries], OWNERS)], resamples=300).of_photos
    # The same draws, and the mean difference of the matrix that each of them makes.
    generator = torch.Generator().manual_seed(0)
    exact: list[float] = []
    for photos in torch.randint(PHOTOS, (300, PHOTOS), generator=generator):
        times = torch.bincount(photos, minlength=PHOTOS).double()
        pairs = times.unsqueeze(1) * times[OWNERS]
        apart = OURS - THEIRS
        others = (pairs * apart)[~OWN].sum() / pairs[~OWN].sum()
        own = (times * apart.masked_fill(~OWN, 0).sum(dim=1)).sum() / (CAPTIONS * PHOTOS)
        exact.append(float(own - others))
    both = torch.stack([drawn, torch.tensor(exact, dtype=torch.float64)])
    assert torch.corrcoef(both)[0, 1] > 0.98
    assert float(both[0].std() / both[1].std()) == pytest.approx(1, abs=0.1)


def test_rankings_of_several_heads_have_no_separation() -> None:
    has = {
        score: [each for each in MEASURES if has_measure(evaluated(OURS), score, each)]
        for score in ("matching", "fused", "attention")
    }
    assert has == {"matching": list(MEASURES), "fused": ["rsum", "r1_r5", "r1"], "attention": []}
