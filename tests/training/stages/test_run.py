"""A run from recipe to checkpoint; whatever kills it, resuming gives the same weights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import aladin_training.loop
from aladin_network.calibration.calibration import CALIBRATION
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import AladinError, CheckpointError, ConfigError, NonFiniteLossError
from aladin_network.types import NullProgress
from aladin_training.config.recipe import load_recipe
from aladin_training.stage_files import read_curves, read_validation
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import run_recipe
from tests.training.interruption import InterruptAfter, InterruptionError


def weights(out: Path, stage: str = "student") -> dict[str, torch.Tensor]:
    return load_file(out / "stages" / stage / "checkpoint" / "model.safetensors")


def assert_same_weights(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


@pytest.fixture(scope="module")
def unbroken(recipe_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    run_recipe(load_recipe(recipe_path), out)
    return out


def test_run_leaves_complete_checkpoints(unbroken: Path) -> None:
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


def test_stage_trains_only_its_parts(unbroken: Path) -> None:
    before, after = weights(unbroken, "joint"), weights(unbroken, "student")
    changed = {name.split(".")[0] for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"matching"}


def test_joint_stage_trains_trunks_and_heads_not_frozen_encoders(
    recipe_path: Path, unbroken: Path, tmp_path: Path
) -> None:
    start = load_recipe(recipe_path, ["stage.joint.lr=1e-30"])
    run_recipe(start, tmp_path / "still")
    before, after = weights(tmp_path / "still", "joint"), weights(unbroken, "joint")
    for name, value in after.items():
        frozen = name.startswith(("image.encoder.", "text.encoder."))
        assert torch.equal(before[name], value) == frozen, name


@pytest.mark.parametrize("steps", [0, 1, 4, 8, 11])
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
    assert_same_weights(weights(out), weights(unbroken))
    logs = [(folder / "stages" / "joint" / "log.jsonl").read_text() for folder in (out, unbroken)]
    assert logs[0] == logs[1]


def test_a_finished_runs_checkpoint_keeps_its_calibration(
    recipe_path: Path, unbroken: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(unbroken, tmp_path / "run"))
    (out / "checkpoint" / CALIBRATION).write_text("{}")
    run_recipe(load_recipe(recipe_path), out, resume=True)
    assert (out / "checkpoint" / CALIBRATION).read_text() == "{}"


def test_resume_after_kill_nine(recipe_path: Path, unbroken: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    script = (
        "import sys; from pathlib import Path; "
        "from aladin_training.config.recipe import load_recipe; "
        "from aladin_training.stages.run import run_recipe; import aladin_training.loop; "
        "aladin_training.loop.SAVE_EVERY_S = 0; "
        "run_recipe(load_recipe(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(recipe_path), str(out)])
    state = out / "stages" / "joint" / "state.pt"
    deadline = time.monotonic() + 60
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert state.exists()
    run_recipe(load_recipe(recipe_path), out, resume=True)
    assert_same_weights(weights(out), weights(unbroken))


def test_trained_encoders_resume_too(
    recipe_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 0.0)
    free = tmp_path / "free.toml"
    free.write_text(recipe_path.read_text().replace("frozen = true", "frozen = false"))
    # In float16 the loss is scaled by a number that is part of the state.
    chunks = [f"stage.{name}.chunk_size=3" for name in ("joint", "student")]
    recipe = load_recipe(free, ["precision=float16", *chunks])
    run_recipe(recipe, tmp_path / "unbroken")
    with pytest.raises(InterruptionError):
        run_recipe(recipe, tmp_path / "broken", progress=InterruptAfter(4))
    assert torch.load(tmp_path / "broken" / "stages" / "joint" / "state.pt")["scaler"]["scale"] > 1
    run_recipe(recipe, tmp_path / "broken", resume=True)
    assert_same_weights(weights(tmp_path / "broken"), weights(tmp_path / "unbroken"))


def test_occupied_folder_is_refused(recipe_path: Path, unbroken: Path) -> None:
    with pytest.raises(ConfigError, match="--resume"):
        run_recipe(load_recipe(recipe_path), unbroken)
    other = load_recipe(recipe_path, ["seed=1"])
    with pytest.raises(ConfigError, match="another recipe"):
        run_recipe(other, unbroken, resume=True)


def test_changed_data_are_refused_on_resume(
    recipe_path: Path, data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 0.0)
    own = tmp_path / "data"
    own.mkdir()
    for file in data_set.parent.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    recipe = load_recipe(recipe_path, [f"data.source={own / 'captions.jsonl'}"])
    with pytest.raises(InterruptionError):
        run_recipe(recipe, tmp_path / "out", progress=InterruptAfter(2))
    lines = (own / "captions.jsonl").read_text().splitlines()
    (own / "captions.jsonl").write_text("\n".join(lines[1:]))
    with pytest.raises(CheckpointError, match="other data"):
        run_recipe(recipe, tmp_path / "out", resume=True)


def test_diverging_training_names_the_step(recipe_path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_path, ["stage.joint.lr=1e30", "stage.joint.clip_norm=1e30"])
    with pytest.raises(NonFiniteLossError, match=r"stage .joint., step [1-9]"):
        run_recipe(recipe, tmp_path / "out")


def test_features_of_frozen_encoders_are_computed_once(
    recipe_path: Path, unbroken: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(recipe_path)
    cache = Path(recipe.data.cache)
    parts = {path: path.stat().st_mtime_ns for path in cache.rglob("*.npy")}
    assert parts
    run_recipe(recipe, tmp_path / "second")
    assert parts == {path: path.stat().st_mtime_ns for path in cache.rglob("*.npy")}
    assert_same_weights(weights(tmp_path / "second"), weights(unbroken))


def test_damaged_photo_is_left_out(
    recipe_path: Path, data_set: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "data"
    own.mkdir()
    for file in data_set.parent.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    (own / "3.png").write_bytes((own / "3.png").read_bytes()[:40])
    recipe = load_recipe(recipe_path, [f"data.source={own / 'captions.jsonl'}"])
    prepared = prepare_run(recipe, NullProgress())
    assert [each.id for each in prepared.train_set.records].count("3.png") == 0
    assert "3.png" in caplog.text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stage.student.tasks.distillation.loss=listnt", "unknown loss 'listnt'"),
        ("data.source=gone.jsonl", "no such file"),
    ],
)
def test_a_mistake_is_found_first_and_leaves_no_folder(
    override: str, message: str, recipe_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(AladinError, match=message):
        run_recipe(load_recipe(recipe_path, [override]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("foreign", ["photo.jpg", "photos"])
def test_a_run_is_not_written_among_photos(recipe_path: Path, tmp_path: Path, foreign: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "train.log").write_text("redirected before the run begins")
    if foreign == "photos":
        (out / foreign).mkdir()
    else:
        (out / foreign).write_bytes(b"x")
    with pytest.raises(ConfigError, match=f"holds '{foreign}'"):
        run_recipe(load_recipe(recipe_path), out)
    assert sorted(path.name for path in out.iterdir()) == [foreign, "train.log"]
