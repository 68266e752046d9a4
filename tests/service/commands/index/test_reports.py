"""What the commands that make a generation say of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_service.cli import app

WARNING = "warning: images: IVF3,Flat finds 0."


def aladin(*words: object) -> Result:
    """Run a command line; it has to succeed."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.stderr
    return result


def test_a_first_stage_that_finds_less_than_was_asked_for_is_a_warning(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = ["index", "build", "--model", tiny_checkpoint, "--images", data_file]
    exact, lists = tmp_path / "exact", ["--ann", "IVF3,Flat"]
    assert "warning" not in aladin(*build, "--out", exact).stderr
    # One list of three is searched, whatever was wanted.
    monkeypatch.setattr("aladin_index.ann.ann_index.AnnIndex.widths", [1])
    built = aladin(*build, "--out", tmp_path / "lists", *lists)
    assert WARNING in built.stderr
    assert "0.99 was wanted" in built.stderr
    assert WARNING in aladin("index", "merge", exact, "--out", tmp_path / "merged", *lists).stderr
    aladin("index", "export", exact, "--out", tmp_path / "out")
    taken = ["--model", tiny_checkpoint, "--out", tmp_path / "imported", *lists]
    assert WARNING in aladin("index", "import", tmp_path / "out", *taken).stderr
    hit = json.loads(aladin("search", tmp_path / "lists", "a dog", "--json").stdout)["hits"][0]
    aladin("index", "delete", tmp_path / "lists", hit["id"], "--target", "images")
    assert WARNING in aladin("index", "compact", tmp_path / "lists").stderr
