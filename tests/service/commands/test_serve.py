"""``aladin serve`` where it cannot serve; where it can is tested in ../http/test_server.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.commands.conftest import aladin


def test_a_damaged_index_ends_with_one(index: Path) -> None:
    weights = index / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    result = aladin("serve", index, "--port", "0", code=1)
    assert "model.safetensors" in result.stderr.splitlines()[-1]


def test_a_damaged_engine_file_ends_with_one(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text("{")
    result = aladin("serve", tmp_path, "--port", "0", code=1)
    assert "engine.json" in result.stderr.splitlines()[-1]


def test_an_impossible_setting_is_named(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_WORKERS", "none")
    said = aladin("serve", index_folder, "--port", "0", code=2).stderr
    assert "ALADIN_WORKERS=none" in said
