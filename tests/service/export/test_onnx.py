"""``aladin export onnx``: what it writes where, and its errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_network.checkpoint import save_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.graphs import export
from aladin_network.model import AladinModel
from aladin_service.cli import app


def test_a_copy_with_graphs(
    tiny_checkpoint: Path,
    exported_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def copy_graphs(folder: Path) -> None:
        shutil.copytree(exported_checkpoint / "onnx", folder / "onnx")

    monkeypatch.setattr(export, "export_graphs", copy_graphs)
    out = tmp_path / "out"
    words = ["export", "onnx", str(tiny_checkpoint), "--out", str(out)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out / 'onnx'}\n"
    manifest = json.loads((out / "onnx" / "manifest.json").read_text())
    assert manifest["model_id"] == read_model_id(tiny_checkpoint) == read_model_id(out)
    for name, entry in manifest["files"].items():
        assert (out / "onnx" / name).stat().st_size == entry["bytes"]
    assert not (tiny_checkpoint / "onnx").exists()
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2
    assert "there is something already" in again.output


@pytest.mark.slow
def test_graphs_that_do_not_compute_the_same_are_not_kept(
    build_tiny: Callable[..., AladinModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path / "checkpoint", build_tiny())
    monkeypatch.setattr(export, "TOLERANCE", 0.0)
    result = CliRunner().invoke(app, ["export", "onnx", str(tmp_path / "checkpoint")])
    assert result.exit_code == 2
    assert "the image tower's numbers to 0.0, they differ by" in result.output
    assert not (tmp_path / "checkpoint" / "onnx").exists()


def test_a_missing_package_is_named(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"onnx", "openvino"}
    monkeypatch.setattr(export, "find_spec", lambda name: name in installed or None)
    result = CliRunner().invoke(app, ["export", "onnx", str(tiny_checkpoint)])
    assert result.exit_code == 2
    assert "the package onnxscript: pip install 'aladin-search[onnx-export]'" in result.output
