"""``aladin mcp``: what it needs to start; `tests/service/mcp` has what it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app
from aladin_service.commands import mcp


def test_either_an_index_or_a_service_is_offered(tmp_path: Path) -> None:
    for words, got in (([], "neither"), ([str(tmp_path), "--url", "http://x"], "both")):
        result = CliRunner().invoke(app, ["mcp", *words])
        assert result.exit_code == 2
        assert f"error: expected either INDEX or --url, got {got}" in result.output


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "find_spec", lambda name: None)  # noqa: ARG005
    result = CliRunner().invoke(app, ["mcp", str(tmp_path)])
    assert result.exit_code == 2
    assert "aladin mcp needs the package mcp: pip install 'aladin-search[mcp]'" in result.output


def test_the_service_does_without_the_package() -> None:
    script = """
import sys
sys.modules["mcp"] = None  # as if it were not installed
import aladin_service.http.app, aladin_service.http.agents, aladin_service.commands.mcp
assert "aladin_service.mcp.tools" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
