"""The conversion in another process: what comes back of it, and that it ends with this one."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aladin_network.checkpoint_files import read_model_id
from aladin_network.conversion import named_models
from aladin_network.conversion.apart import convert_apart, convert_here
from aladin_network.conversion.named_models import named_model
from aladin_network.errors import CheckpointError
from tests.dual_encoders import save_dual_encoder


def test_another_process_converts_and_its_messages_are_logged_here(
    clip_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(named_models, "convert_apart", convert_apart)
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")
    caplog.set_level(logging.INFO)
    found = named_model(str(clip_folder), lambda: tmp_path / "models")
    assert f"writing the graphs of {found}" in caplog.messages
    assert (found / "onnx" / "image.onnx").exists()
    convert_here(clip_folder, tmp_path / "here", None)
    assert read_model_id(found) == read_model_id(tmp_path / "here")


def test_what_cannot_be_converted_is_said_as_if_it_were_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_dual_encoder("clip", tmp_path / "clip")
    (tmp_path / "clip" / "tokenizer.json").unlink()
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "clip" / name).unlink(missing_ok=True)
    out = tmp_path / "out"
    with pytest.raises(CheckpointError) as here:
        convert_here(tmp_path / "clip", out, "a/clip")
    with pytest.raises(CheckpointError) as apart:
        convert_apart(tmp_path / "clip", out, "a/clip")
    assert str(apart.value) == str(here.value)
    assert not out.exists()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CheckpointError, match="a/clip: its conversion ended with status 1"):
        convert_apart(tmp_path / "clip", out, "a/clip")


def test_it_ends_when_nobody_waits_for_it() -> None:
    program = "import sys, time; from aladin_network.conversion import apart; "
    slow = "apart.convert_here = lambda *_: time.sleep(60); apart._main('', '', '')"
    process = subprocess.Popen([sys.executable, "-c", program + slow], stdin=subprocess.PIPE)
    assert process.stdin is not None
    time.sleep(0.5)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(30) == 1
