"""``aladin export onnx``: what it writes where."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aladin_network import errors
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.calibration.fitted_files import read_fitted
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.graphs import export
from aladin_network.scoring.hub_correction import CORRECTION
from tests.index.corrections import correction_of
from tests.service.commands.conftest import aladin
from tests.service.conftest import make_photo


def test_out_is_a_copy_of_the_checkpoint_with_graphs_and_what_was_fitted(
    checkpoint: Path,
    exported_checkpoint: Path,
    make_calibration: Callable[..., Calibration],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graphs at hand are copied instead of traced."""
    monkeypatch.setattr(
        export,
        "export_graphs",
        lambda folder: shutil.copytree(exported_checkpoint / "onnx", folder / "onnx"),
    )
    model_id, out = read_model_id(checkpoint), tmp_path / "out"
    photos = [tmp_path / f"{number}.png" for number in range(4)]
    for number, path in enumerate(photos):
        make_photo(number).save(path)
    correction = correction_of(checkpoint, photos, 0.8)
    correction.save(checkpoint / CORRECTION)
    calibration = make_calibration(model_id)
    fitted_on = replace(calibration.fitted_on, correction=correction.constants.id)
    write_calibration(checkpoint, replace(calibration, fitted_on=fitted_on))

    assert aladin("export", "onnx", checkpoint, "--out", out).stdout == f"{out / 'onnx'}\n"
    manifest = json.loads((out / "onnx" / "manifest.json").read_text())
    assert manifest["model_id"] == load_checkpoint(out).model_id == model_id
    for name, entry in manifest["files"].items():
        assert (out / "onnx" / name).stat().st_size == entry["bytes"]
    for file in checkpoint.iterdir():
        assert (out / file.name).read_bytes() == file.read_bytes()
    assert not (checkpoint / "onnx").exists()
    fitted = read_fitted(out, model_id)
    assert fitted.calibration == replace(calibration, fitted_on=fitted_on)
    assert fitted.correction is not None
    assert fitted.correction.constants == correction.constants


@pytest.mark.slow
def test_graphs_that_do_not_compute_the_same_are_not_kept(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "TOLERANCE", 0.0)
    result = aladin("export", "onnx", checkpoint, code=2)
    assert "the image tower's numbers to 0.0, they differ by" in result.output
    assert not (checkpoint / "onnx").exists()


def test_a_missing_package_is_named(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"onnx", "onnxruntime"}
    monkeypatch.setattr(errors, "find_spec", lambda name: name in installed or None)
    result = aladin("export", "onnx", tiny_checkpoint, code=2)
    line = f"{sys.executable} -m pip install 'aladin-search[train]'"
    assert f"the package onnxscript: {line} (without a GPU, add --extra-index" in result.output
