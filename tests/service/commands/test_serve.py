"""``aladin serve`` where it cannot serve; where it can is tested in ../http/test_server.py."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli import app


def test_a_port_that_is_taken(index_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["serve", str(index_folder), "--port", str(port)])
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1, port {port}: " in result.stderr


def test_a_damaged_index(index_folder: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shutil.copytree(index_folder, index)
    weights = index / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    result = CliRunner().invoke(app, ["serve", str(index), "--port", "0"])
    assert result.exit_code == 1
    assert "model.safetensors" in result.stderr.splitlines()[-1]


def test_an_impossible_setting(index_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALADIN_WORKERS", "none")
    result = CliRunner().invoke(app, ["serve", str(index_folder), "--port", "0"])
    assert result.exit_code == 2
    assert "ALADIN_WORKERS=none" in result.stderr
