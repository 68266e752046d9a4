"""``aladin train``: from a recipe with overrides to a checkpoint, and resuming."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_network.checkpoint import load_checkpoint
from aladin_service.cli import app

RECIPE = Path(__file__).parents[3] / "training" / "recipes" / "demo.toml"


@pytest.fixture(scope="module")
def source(data_file: Path) -> Path:
    """The photos of `data_file`, four to train on and two to validate with."""
    lines = [json.loads(line) for line in data_file.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines):
        line["split"] = "train" if number < 4 else "val"
    file = data_file.with_name("train.jsonl")
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return file


def train(source: Path, out: Path, *more: str) -> Result:
    """Run the command with one short epoch a stage."""
    changes = [f"stage.{stage}.epochs=1" for stage in ("teacher", "words", "student")]
    words = [f"--set={change}" for change in (f"data.source={source}", *changes)]
    return CliRunner().invoke(app, ["train", str(RECIPE), "--out", str(out), *words, *more])


def test_a_run_prints_its_checkpoint_and_is_resumed_only_if_asked(
    source: Path, tmp_path: Path, exports: list[Path]
) -> None:
    out = tmp_path / "run"
    first = train(source, out)
    assert first.exit_code == 0, first.stderr
    checkpoint = Path(first.stdout.strip())
    assert checkpoint.parent == out
    assert exports == [checkpoint]
    loaded = load_checkpoint(checkpoint)
    assert loaded.provenance.stage == "student"
    assert "steps" in first.stderr

    again = train(source, out)
    assert again.exit_code == 2
    assert "--resume" in again.stderr

    resumed = train(source, out, "--resume")
    assert resumed.exit_code == 0
    assert resumed.stdout == first.stdout
    assert load_checkpoint(checkpoint).model_id == loaded.model_id


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("stage.teacher.epoch=1", "epoch"),
        ("stage.teacher.epochs=0", "epochs"),
        ("stage.nobody.epochs=1", "nobody"),
        ("stage", "key=value"),
        ("data.source=missing.jsonl", "missing.jsonl"),
    ],
)
def test_impossible_recipes_are_the_users_mistake(
    source: Path, tmp_path: Path, change: str, says: str
) -> None:
    result = train(source, tmp_path / "run", "--set", change)
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[-1]
    assert result.stdout == ""
