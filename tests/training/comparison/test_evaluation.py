"""A stored evaluation comes back as it was, and only for the weights and split it is of."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import save_file

from aladin_training.comparison.evaluation import (
    RunEvaluation,
    finished_evaluation,
    load_evaluation,
)
from aladin_training.comparison.plan import ComparisonPlan, PlannedRun

TEXT_RANKS, IMAGE_RANKS = [0, 4, 9, 10, 0, 0, 2, 30], [0, 0, 5, 10]


@pytest.fixture
def run(plan: ComparisonPlan) -> PlannedRun:
    return plan.runs()[0]


def test_everything_comes_back(finish_run: Callable[..., RunEvaluation], run: PlannedRun) -> None:
    saved = finish_run(run, TEXT_RANKS, IMAGE_RANKS)
    loaded = load_evaluation(run.folder, "val")
    assert loaded is not None
    assert loaded.metrics() == saved.metrics()
    assert loaded.queries == saved.queries == "of four photos"
    assert loaded.mean_difference == saved.mean_difference
    assert loaded.cross_rank == saved.cross_rank
    assert torch.equal(loaded.image_of_text, saved.image_of_text)
    assert loaded.histograms.keys() == {"matching", "alignment"}
    for name, histogram in loaded.histograms.items():
        assert histogram.edges() == saved.histograms[name].edges()
        assert torch.equal(histogram.positive, saved.histograms[name].positive)
        assert torch.equal(histogram.negative, saved.histograms[name].negative)
        assert torch.equal(histogram.hardest, saved.histograms[name].hardest)
    assert loaded.cross_ranks.keys() == loaded.separation.keys() == {"matching", "alignment"}
    assert torch.equal(loaded.cross_ranks["matching"], saved.cross_ranks["matching"])
    for direction in ("text_to_image", "image_to_text"):
        read, written = (
            getattr(each.separation["matching"], direction) for each in (loaded, saved)
        )
        for values, before in zip(read, written, strict=True):
            assert torch.equal(values, before)


def test_the_numbers_can_be_read_without_us(
    finish_run: Callable[..., RunEvaluation], run: PlannedRun
) -> None:
    finish_run(run, TEXT_RANKS, IMAGE_RANKS)
    numbers = json.loads((run.folder / "evaluation.json").read_text())
    matching = numbers["metrics"]["matching"]
    # Of eight captions three are at rank 1, five below 5, six below 10; of four photos 2, 2, 3.
    assert matching["text_to_image"]["r1"] == 37.5
    assert matching["rsum"] == 37.5 + 62.5 + 75 + 50 + 50 + 75


def test_other_weights_split_or_version_are_no_evaluation_of_the_run(
    finish_run: Callable[..., RunEvaluation], run: PlannedRun
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
    weights = {"weight": torch.tensor([99])}
    save_file(weights, run.folder / "checkpoint" / "model.safetensors")
    assert load_evaluation(run.folder, "val") is None


def test_a_report_needs_no_weights(
    finish_run: Callable[..., RunEvaluation], run: PlannedRun
) -> None:
    """Hundreds of runs fill a disk: their weights may be deleted once they are evaluated."""
    saved = finish_run(run, TEXT_RANKS, IMAGE_RANKS)
    (run.folder / "checkpoint" / "model.safetensors").unlink()
    found = finished_evaluation(run, "val")
    assert found is not None
    assert found.model_id == saved.model_id
    assert found.metrics() == saved.metrics()
    assert finished_evaluation(run, "test") is None
