"""``aladin serve`` where it cannot serve; where it can is tested in ../http/test_server.py."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app


def test_a_port_that_is_taken(index_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["serve", str(index_folder), "--port", str(port)])
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1, port {port}: " in result.stderr
    assert "; choose another with --port" in result.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_keys_it_listens_on_this_machine_alone(index_folder: Path, host: str) -> None:
    result = CliRunner().invoke(app, ["serve", str(index_folder), "--host", host, "--port", "0"])
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert f"without keys the service listens on 127.0.0.1 only, not on {host}" in last
    assert "--keys" in last
    assert "--allow-anonymous" in last


@pytest.mark.parametrize("content", [None, "{}"])
def test_keys_that_cannot_be_read(index_folder: Path, tmp_path: Path, content: str | None) -> None:
    keys = tmp_path / "keys.json"
    if content is not None:
        keys.write_text(content)
    result = CliRunner().invoke(app, ["serve", str(index_folder), "--keys", str(keys)])
    assert result.exit_code == 2
    assert str(keys) in result.stderr.splitlines()[-1]


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


def test_a_damaged_engine_file(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text("{")
    result = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", "0"])
    assert result.exit_code == 1
    assert "engine.json" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_folder_without_an_index_is_refused_at_once(tmp_path: Path, workers: str) -> None:
    words = ["serve", str(tmp_path), "--port", "0", "--workers", workers]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert f"{tmp_path}: no index here" in last
    assert "use --wait to start the service before an index is published" in last
