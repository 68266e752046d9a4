"""``aladin export onnx``: what it writes where, and its errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.calibration.fitted_files import read_fitted
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.graphs import export
from aladin_network.model import AladinModel
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_service.cli import app
from tests.index.corrections import correction_of
from tests.service.conftest import make_photo


@pytest.fixture
def graphs_at_hand(exported_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an export copy graphs of the tiny network instead of tracing it."""

    def copy_graphs(folder: Path) -> None:
        shutil.copytree(exported_checkpoint / "onnx", folder / "onnx")

    monkeypatch.setattr(export, "export_graphs", copy_graphs)


def onnx(*words: object) -> Result:
    return CliRunner().invoke(app, ["export", "onnx", *map(str, words)])


@pytest.mark.usefixtures("graphs_at_hand")
def test_out_is_a_copy_of_the_checkpoint_with_graphs(tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = onnx(tiny_checkpoint, "--out", out)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out / 'onnx'}\n"
    manifest = json.loads((out / "onnx" / "manifest.json").read_text())
    assert manifest["model_id"] == read_model_id(tiny_checkpoint)
    assert load_checkpoint(out).model_id == read_model_id(tiny_checkpoint)
    for file in tiny_checkpoint.iterdir():
        assert (out / file.name).read_bytes() == file.read_bytes()
    for name, entry in manifest["files"].items():
        assert (out / "onnx" / name).stat().st_size == entry["bytes"]
    assert not (tiny_checkpoint / "onnx").exists()


def test_a_missing_checkpoint_and_a_folder_in_use_are_one_line_each(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    missing = onnx(tmp_path / "none", "--out", tmp_path / "out")
    assert missing.exit_code == 2
    assert missing.stderr.startswith(f"error: {tmp_path / 'none'}: no such folder; expected a")
    assert len(missing.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    used = onnx(tiny_checkpoint, "--out", tiny_checkpoint)
    assert used.exit_code == 2
    assert "there is something already" in used.stderr
    assert len(used.stderr.splitlines()) == 1


@pytest.mark.usefixtures("graphs_at_hand")
def test_the_correction_and_its_calibration_come_along(
    tiny_checkpoint: Path, make_calibration: Callable[..., Calibration], tmp_path: Path
) -> None:
    source, out = Path(shutil.copytree(tiny_checkpoint, tmp_path / "source")), tmp_path / "out"
    model_id = read_model_id(source)
    photos = [tmp_path / f"{number}.png" for number in range(4)]
    for number, path in enumerate(photos):
        make_photo(number).save(path)
    correction = correction_of(source, photos, 0.8)
    correction.save(source / CORRECTION)
    calibration = make_calibration(model_id)
    fitted_on = replace(calibration.fitted_on, correction=correction.constants.id)
    write_calibration(source, replace(calibration, fitted_on=fitted_on))
    result = onnx(source, "--out", out)
    assert result.exit_code == 0, result.output
    fitted = read_fitted(out, model_id)
    assert fitted.calibration == replace(calibration, fitted_on=fitted_on)
    assert fitted.correction is not None
    assert fitted.correction.constants == correction.constants
    assert (out / CORRECTION).read_bytes() == (source / CORRECTION).read_bytes()


@pytest.mark.slow
def test_graphs_that_do_not_compute_the_same_are_not_kept(
    build_tiny: Callable[..., AladinModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path / "checkpoint", build_tiny())
    monkeypatch.setattr(export, "TOLERANCE", 0.0)
    result = onnx(tmp_path / "checkpoint")
    assert result.exit_code == 2
    assert "the image tower's numbers to 0.0, they differ by" in result.output
    assert not (tmp_path / "checkpoint" / "onnx").exists()


def test_a_missing_package_is_named(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"onnx", "onnxruntime"}
    monkeypatch.setattr(export, "find_spec", lambda name: name in installed or None)
    result = onnx(tiny_checkpoint)
    assert result.exit_code == 2
    assert "the package onnxscript: pip install 'aladin-search[cpu]'" in result.output
