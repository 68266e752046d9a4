"""A run from recipe to checkpoint; whatever kills it, resuming gives the same weights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

import aladin_training.loop
from aladin_network.calibration.calibration import CALIBRATION
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import AladinError, CheckpointError, ConfigError, NonFiniteLossError
from aladin_network.types import NullProgress
from aladin_training.config.recipe import load_recipe
from aladin_training.stage_files import read_curves, read_validation
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import run_recipe
from tests.training.runs import (
    InterruptAfter,
    InterruptionError,
    assert_same_weights,
    weights,
)


def test_a_run_leaves_complete_checkpoints(unbroken: Path) -> None:
    checkpoint = load_checkpoint(unbroken / "checkpoint")
    assert checkpoint.provenance.stage == "student"
    config = json.loads((unbroken / "checkpoint" / "config.json").read_text())
    assert config["alignment_trained"] is True  # by the stage before, which the student continues
    assert json.loads(checkpoint.provenance.recipe)["name"] == "test"
    validation = read_validation(unbroken / "stages" / "student")
    assert validation.keys() == {"matching", "alignment", "fused", "two_stage"}
    expected = {f"{name}_rsum": metrics.rsum for name, metrics in validation.items()}
    assert checkpoint.provenance.validation == pytest.approx(expected)
    assert 0 < validation["matching"].rsum <= 600
    curves = read_curves(unbroken / "stages" / "student")
    last = {name: list(curve.values())[-1] for name, curve in curves.items()}
    recalls = [last[f"matching_{each}_r1"] for each in ("text_to_image", "image_to_text")]
    assert all(0 <= recall <= 100 for recall in recalls)
    assert sum(recalls) <= last["matching_rsum"]
    assert -2 <= last["matching_mean_difference"] <= 2


def test_a_stage_trains_its_parts_alone_and_no_frozen_encoder(
    recipe_path: Path, unbroken: Path
) -> None:
    prepared = prepare_run(load_recipe(recipe_path), NullProgress())
    before, joint, student = (
        prepared.model.state_dict(),
        weights(unbroken, "joint"),
        weights(unbroken, "student"),
    )
    for name, value in joint.items():
        frozen = name.startswith(("image.encoder.", "text.encoder."))
        assert torch.equal(before[name], value) == frozen, name
    changed = {name for name in student if not torch.equal(joint[name], student[name])}
    assert {name.split(".")[0] for name in changed} == {"matching"}
    # The outputs of frozen encoders were computed once, for all runs of the recipe.
    cache = Path(load_recipe(recipe_path).data.cache)
    parts = {path: path.stat().st_mtime_ns for path in cache.rglob("*.npy")}
    assert parts
    prepared.train_set.read_by(prepared.model)
    assert parts == {path: path.stat().st_mtime_ns for path in cache.rglob("*.npy")}


def test_the_log_has_the_rate_of_its_step(
    recipe_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of warming up, then a fall by half in every epoch of two steps."""
    monkeypatch.setattr(aladin_training.loop, "LOG_EVERY_STEPS", 1)
    schedule = '{"shape": "step", "warmup_steps": 2, "step_epochs": 1, "gamma": 0.5}'
    settings = ["final=joint", "stage.joint.lr=0.01", f"stage.joint.schedule={schedule}"]
    used: list[float] = []
    set_lr = aladin_training.loop.set_lr

    def record(optimizer: torch.optim.Optimizer, rate: float) -> None:
        used.append(rate)
        set_lr(optimizer, rate)

    monkeypatch.setattr(aladin_training.loop, "set_lr", record)
    run_recipe(load_recipe(recipe_path, settings), tmp_path / "run")
    rates = read_curves(tmp_path / "run" / "stages" / "joint")["lr"]
    assert rates == dict(enumerate(used, start=1))
    assert len(set(used)) > 2


@pytest.mark.parametrize("steps", [4, 11])
def test_resume_after_any_step_ends_with_the_same_weights(
    steps: int, recipe_path: Path, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Odd interruptions resume from an epoch's end, even ones from the very step.
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 1e9 if steps % 2 else 0.0)
    recipe = load_recipe(recipe_path)
    out = tmp_path / "broken"
    with pytest.raises(InterruptionError):
        run_recipe(recipe, out, progress=InterruptAfter(steps))
    run_recipe(recipe, out, resume=True)
    assert_same_weights(out, unbroken)
    logs = [(folder / "stages" / "joint" / "log.jsonl").read_text() for folder in (out, unbroken)]
    assert logs[0] == logs[1]


def test_resume_after_kill_nine_ends_with_the_same_weights(
    recipe_path: Path,
    unbroken: Path,
    tmp_path: Path,
    train_elsewhere: Callable[..., BaseProcess],
) -> None:
    out = tmp_path / "killed"
    process = train_elsewhere(out)
    state = out / "stages" / "joint" / "state.pt"
    deadline = time.monotonic() + 300
    while not state.exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert state.exists()
    run_recipe(load_recipe(recipe_path), out, resume=True)
    assert_same_weights(out, unbroken)


def test_trained_encoders_in_chunks_of_float16_resume_too(
    recipe_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float16 the loss is scaled by a number that is part of the state."""
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 0.0)
    frozen = [f"model.{side}_encoder.frozen=false" for side in ("image", "text")]
    short = ["final=joint", "stage.joint.epochs=2", "stage.joint.chunk_size=3"]
    recipe = load_recipe(recipe_path, ["precision=float16", *frozen, *short])
    run_recipe(recipe, tmp_path / "unbroken")
    with pytest.raises(InterruptionError):
        run_recipe(recipe, tmp_path / "broken", progress=InterruptAfter(4))
    assert torch.load(tmp_path / "broken" / "stages" / "joint" / "state.pt")["scaler"]["scale"] > 1
    run_recipe(recipe, tmp_path / "broken", resume=True)
    assert_same_weights(tmp_path / "broken", tmp_path / "unbroken")


def test_a_finished_runs_checkpoint_keeps_its_calibration(
    recipe_path: Path, unbroken: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(unbroken, tmp_path / "run"))
    (out / "checkpoint" / CALIBRATION).write_text("{}")
    run_recipe(load_recipe(recipe_path), out, resume=True)
    assert (out / "checkpoint" / CALIBRATION).read_text() == "{}"


@pytest.fixture
def own_data(data_set: Path, tmp_path: Path) -> Path:
    """A copy of the data set, to be changed."""
    return Path(shutil.copytree(data_set.parent, tmp_path / "data")) / "captions.jsonl"


def test_changed_data_are_refused_on_resume(
    recipe_path: Path, own_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 0.0)
    recipe = load_recipe(recipe_path, [f"data.source={own_data}"])
    with pytest.raises(InterruptionError):
        run_recipe(recipe, tmp_path / "out", progress=InterruptAfter(2))
    own_data.write_text("\n".join(own_data.read_text().splitlines()[1:]))
    with pytest.raises(CheckpointError, match="other data"):
        run_recipe(recipe, tmp_path / "out", resume=True)


def test_a_damaged_photo_is_left_out(
    recipe_path: Path, own_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    photo = own_data.with_name("3.png")
    photo.write_bytes(photo.read_bytes()[:40])
    prepared = prepare_run(load_recipe(recipe_path, [f"data.source={own_data}"]), NullProgress())
    assert "3.png" not in [each.id for each in prepared.train_set.records]
    assert "3.png" in caplog.text


def test_diverging_training_names_the_step(recipe_path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_path, ["stage.joint.lr=1e30", "stage.joint.clip_norm=1e30"])
    with pytest.raises(NonFiniteLossError, match=r"stage .joint., step [1-9]"):
        run_recipe(recipe, tmp_path / "out")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stage.student.tasks.distillation.loss=listnt", "unknown loss 'listnt'"),
        ("data.source=gone.jsonl", "no such file"),
        ("data.selection=1e-9", "of 12 training photos, 12 are left to train on and 0"),
    ],
)
def test_a_mistake_is_found_first_and_leaves_no_folder(
    override: str, message: str, recipe_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(AladinError, match=message):
        run_recipe(load_recipe(recipe_path, [override]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_run_or_of_photos_is_refused(
    recipe_path: Path, unbroken: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(recipe_path)
    with pytest.raises(ConfigError, match="--resume"):
        run_recipe(recipe, unbroken)
    with pytest.raises(ConfigError, match="another recipe"):
        run_recipe(load_recipe(recipe_path, ["seed=1"]), unbroken, resume=True)
    out = tmp_path / "out"
    out.mkdir()
    (out / "train.log").write_text("redirected before the run begins")
    for foreign in ("photos", "photo.jpg"):
        (out / foreign).mkdir()
        with pytest.raises(ConfigError, match=f"holds '{foreign}'"):
            run_recipe(recipe, out)
        assert sorted(path.name for path in out.iterdir()) == [foreign, "train.log"]
        (out / foreign).rmdir()
