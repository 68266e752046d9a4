"""What ``aladin index info`` says of probabilities."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin.calibration.calibration import Calibration
from index.info import describe
from index.tuning.calibrate import store_calibration
from service.cli import app
from service.reports.index_facts import calibration_warnings


def info(*words: object) -> Result:
    """Run the command; it has to succeed."""
    result = CliRunner().invoke(app, ["index", "info", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    return result


def test_an_index_without_a_calibration_says_so(index_folder: Path) -> None:
    result = info(index_folder)
    assert "none, not calibrated" in result.stdout
    assert "warning" not in result.stderr
    assert json.loads(info(index_folder, "--json").stdout)["calibration"] is None


def test_a_calibration_is_told_with_what_it_is_worth(calibrated_index: Path) -> None:
    result = info(calibrated_index)
    shown = " ".join(result.stdout.split())
    assert "fitted on 40 photos and 40 texts (captions.jsonl, val)" in shown
    figures = (
        "ECE 0.020 of hits, 0.020 of any match; AUROC of any match 0.900 (0.850 to 0.950); no "
        "match below 0.250"
    )
    assert shown.count(figures) == 2
    told = json.loads(info(calibrated_index, "--json").stdout)["calibration"]
    assert (told["pool"], told["fitted_on"]["photos"]) == (20, 40)


@pytest.mark.parametrize(
    # Of 6 photos and 12 texts.
    ("photos", "warned"),
    [(40, []), (60, []), (61, ["images"]), (121, ["images", "texts"]), (1, ["texts"])],
)
def test_far_more_or_fewer_items_than_it_was_fitted_among_are_warned_of(
    index_folder: Path,
    make_calibration: Callable[..., Calibration],
    photos: int,
    warned: list[str],
) -> None:
    described = replace(describe(index_folder), calibration=make_calibration("any", photos))
    warnings = calibration_warnings(described)
    assert [warning.split(":")[0] for warning in warnings] == warned
    assert all(f"among {photos:,}, here are" in warning for warning in warnings)


def test_warnings_go_to_stderr(
    index_folder: Path, tmp_path: Path, make_calibration: Callable[..., Calibration]
) -> None:
    root = Path(shutil.copytree(index_folder, tmp_path / "index"))
    store_calibration(root, make_calibration(describe(root).model_id, 61))
    assert info(root).stderr.startswith("warning: images: probabilities were fitted among 61")
