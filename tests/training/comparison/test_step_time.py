"""Step times and memory: what is measured of which stage, and what is kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aladin_network.types import NullProgress
from aladin_training.batches.batch import Batch
from aladin_training.comparison.peak_memory import peak_bytes
from aladin_training.comparison.step_time import (
    RandomSources,
    StepTime,
    load_step_times,
    measure_step_times,
    save_step_times,
)
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import OfflineNegativesConfig
from aladin_training.loop import StageTrainer
from aladin_training.stages.preparation import prepare_run
from aladin_training.tasks.joint import LossReport

FINAL = {
    "boosted": {
        "tasks": {"matching_boosting": {"loss": "boosting"}},
        "anchors": {"scenario": "offline", "stages": ["joint"]},
    },
    "offline": {
        "tasks": {"alignment_quintuplet": {"loss": "offline_quintuplet"}},
        "offline": {"stage": "joint"},
    },
}


@pytest.fixture
def recipes(variant: Callable[..., Recipe]) -> list[Recipe]:
    """A baseline, a stage with an anchor, one with mined lists, and one without data."""
    made = [variant("base")]
    for name, final in FINAL.items():
        stage = {"name": "final", "batch_size": 4, **final}
        first = {"name": "joint", "tasks": {"alignment": {"loss": "triplet"}}}
        made.append(variant(name, f"stage={json.dumps([first, stage])}"))
    return [*made, variant("gone", "data.source=gone.jsonl")]


def test_the_final_stage_s_steps_are_taken_in_turn_with_the_baseline_s(
    recipes: list[Recipe], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[str] = []
    seconds = {"student": 2.0, "final": 3.0}
    step = StageTrainer.train_step

    def recorded(self: StageTrainer, batch: Batch) -> LossReport:
        taken.append(self._stage.name)
        return step(self, batch)

    def clock() -> float:
        return sum(seconds[name] for name in taken)

    monkeypatch.setattr(StageTrainer, "train_step", recorded)
    monkeypatch.setattr("aladin_training.comparison.step_time.time.perf_counter", clock)
    measured = measure_step_times(recipes, recipes[0], rounds=2)
    assert all(each.peak_bytes for each in measured.values())
    times = {name: each._replace(peak_bytes=None) for name, each in measured.items()}
    assert times == {
        "base": StepTime(2000, 2000, 1),
        "boosted": StepTime(3000, 2000, 1.5),
        "offline": StepTime(3000, 2000, 1.5),
    }
    assert "gone: step time not measured" in caplog.text
    first_or_second = ["final", "student", "student", "final"]
    assert not [each for each in threading.enumerate() if "look-ahead" in each.name]
    in_turn = 2 * first_or_second + first_or_second[:2]
    assert taken[11:] == 2 * [*in_turn, "final"]  # the last one is for its memory


def test_random_lists_never_hold_a_photo_s_own(recipes: list[Recipe]) -> None:
    model, train_set, *_ = prepare_run(recipes[0], NullProgress())
    config = OfflineNegativesConfig(stage="joint", num_texts=50, num_images=10)
    lists = RandomSources(model, train_set).negatives(config)
    photo_of = train_set.image_of_text
    n_photos = len(train_set.captions_of_photo)
    assert lists.texts.shape == (n_photos, 50)
    assert lists.images.shape == (len(photo_of), 10)
    assert (photo_of[lists.texts.long()] != torch.arange(n_photos).unsqueeze(1)).all()
    assert (lists.images != photo_of.unsqueeze(1)).all()
    assert lists.images.min() >= 0
    assert lists.images.max() < n_photos


def test_times_are_kept_for_the_recipes_they_were_measured_of(
    recipes: list[Recipe], variant: Callable[..., Recipe], tmp_path: Path
) -> None:
    file = tmp_path / "step_times.json"
    base, other = recipes[:2]
    assert load_step_times(file, recipes, base) == {}
    time = StepTime(3.0, 2.0, 1.5, peak_bytes=1_000)
    save_step_times(file, {"boosted": time}, [base, other], base)
    assert load_step_times(file, recipes, base) == {"boosted": time}
    assert load_step_times(file, recipes, other) == {}  # beside another baseline
    changed = variant("base", "stage.student.lr=0.5")
    assert load_step_times(file, recipes, changed) == {}


CPU = torch.device("cpu")
KB = 4 * 256  # of 256 float32


def test_memory_that_is_released_or_was_there_before_does_not_count() -> None:
    held = torch.ones(10_000)

    def work() -> None:
        first = torch.ones(256)
        second = first + first
        del first
        third = torch.cat([second, second])  # 1 + 2 are held
        assert third.sum() == 1024

    assert peak_bytes(work, CPU) == pytest.approx(3 * KB, abs=64)  # and a sum or two
    assert peak_bytes(lambda: held.sum(), CPU) < KB


def test_memory_that_autograd_keeps_counts() -> None:
    values = torch.ones(256, requires_grad=True)
    # The product is released once its exponential is there, which is kept, like its square; then
    # come the gradients.
    most = peak_bytes(lambda: (values.detach() * values).exp().square().sum().backward(), CPU)
    assert 3 * KB <= most <= 5 * KB
    assert values.grad is not None
