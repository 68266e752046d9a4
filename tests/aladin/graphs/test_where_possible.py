"""Graphs that nobody asked for: written where they can be, and no failure where they cannot."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import GRAPHS
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.graphs import export
from aladin_network.graphs.export import export_where_possible
from aladin_network.graphs.loading import load_for_inference
from aladin_network.model import AladinModel


def test_graphs_that_are_there_are_kept_and_those_of_other_weights_replaced(
    build_tiny: Callable[..., AladinModel],
    exported_checkpoint: Path,
    tmp_path: Path,
    exports: list[Path],
) -> None:
    assert export_where_possible(exported_checkpoint)
    assert exports == []
    model = build_tiny()
    with torch.no_grad():
        next(model.parameters()).add_(1)
    save_checkpoint(tmp_path / "other", model)
    shutil.copytree(exported_checkpoint / GRAPHS, tmp_path / "other" / GRAPHS)
    with pytest.raises(CheckpointError, match=r"exported from weights .*, the checkpoint has"):
        load_for_inference(tmp_path / "other")
    assert export_where_possible(tmp_path / "other")
    assert exports == [tmp_path / "other"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConfigError("no graph form"), "no graph form"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (RuntimeError("first\nsecond"), "RuntimeError: first second"),
    ],
)
def test_a_failure_is_one_line_and_leaves_a_checkpoint_for_torch(
    folder: Path,
    exports: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    reason: str,
) -> None:
    def fail(_: Path) -> None:
        raise error

    caplog.set_level("WARNING")
    with monkeypatch.context() as patch:  # none are written for torch
        patch.setenv("ALADIN_RUNTIME", "torch")
        assert not export_where_possible(folder)
    monkeypatch.setattr(export, "export_graphs", fail)
    assert not export_where_possible(folder)
    logged = f"{folder} has no graphs, so that encoding needs torch: {reason}"
    assert (caplog.messages, exports) == ([logged], [])
    assert isinstance(load_for_inference(folder).model, AladinModel)


def test_an_interruption_leaves_a_checkpoint_without_graphs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")

    def interrupted(*words: Any) -> None:
        path: Path = words[-1]
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    before = sorted(folder.iterdir())
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")
    monkeypatch.setattr(export, "_export", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_where_possible(folder)
    assert sorted(folder.iterdir()) == before
    model = load_for_inference(folder).model
    assert isinstance(model, AladinModel)
    assert load_checkpoint(folder).model_id
