"""What ``aladin index info`` says of probabilities."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner, Result

from aladin_index.generations.info import describe
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.checkpoint_files import read_model_id
from aladin_service.cli import app


def info(*words: object) -> Result:
    """Run the command; it has to succeed."""
    result = CliRunner().invoke(app, ["index", "info", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    return result


def test_an_index_without_a_calibration_says_so(index_folder: Path) -> None:
    result = info(index_folder)
    assert "calibration none" in " ".join(result.stdout.split())
    assert "warning" not in result.stderr
    assert json.loads(info(index_folder, "--json").stdout)["calibration"] is None


def test_a_calibration_is_shown_with_its_figures(calibrated_index: Path) -> None:
    result = info(calibrated_index)
    shown = " ".join(result.stdout.split())
    assert "fitted on data captions.jsonl, split val, photos 40, texts 40," in shown
    figures = "figures ece 0.02, auroc 0.9, false alarms 0.05, detected 0.4"
    assert shown.count(figures) == 2
    told = json.loads(info(calibrated_index, "--json").stdout)["calibration"]
    assert told["fitted_on"]["photos"] == 40
    assert "data_sample" not in told["fitted_on"]


def test_a_calibration_of_other_photos_is_a_warning(
    index_folder: Path, make_calibration: Callable[..., Calibration]
) -> None:
    made, facts = make_calibration("any"), describe(index_folder)
    [warning] = replace(facts, calibration=replace(made, other_photos=True)).warnings()
    assert warning.startswith(
        "the probabilities are not used: they were fitted on captions.jsonl, to which most photos "
        "of this index do not belong; to fit them"
    )
    assert replace(facts, calibration=made).warnings() == []
    assert facts.warnings() == []


def test_index_build_says_it_in_one_line(
    tiny_checkpoint: Path,
    data_file: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    checkpoint = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    made = make_calibration(read_model_id(checkpoint), data=["elsewhere.jpg"])
    write_calibration(checkpoint, made)
    words = ["index", "build", "--model", checkpoint, "--images", data_file]
    built = CliRunner().invoke(app, [*map(str, words), "--out", str(tmp_path / "index")])
    assert built.exit_code == 0, built.stderr
    said = [line for line in built.stderr.splitlines() if "probabilities" in line]
    assert len(said) == 1
    assert said[0].startswith("warning: the probabilities are not used")
