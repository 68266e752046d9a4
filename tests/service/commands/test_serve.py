"""``aladin serve`` and ``mcp`` where they cannot serve; the rest is in ../http."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_service.commands import mcp
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


def test_agents_without_their_package_are_told_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "find_spec", lambda name: None)  # noqa: ARG005
    said = aladin("mcp", tmp_path, code=2).stderr
    assert "aladin mcp needs the package mcp: pip install 'aladin-search[mcp]'" in said
