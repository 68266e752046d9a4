"""``aladin index fit``, and what ``aladin index info`` says of it."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app


@pytest.fixture
def built(index_folder: Path, tmp_path: Path) -> Path:
    """An index of six photos and their captions that a test may change."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


def test_a_fit_to_texts_of_a_file_is_live_and_shown(built: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    parts = ("a red", "a blue", "the green"), ("big", "small"), ("circle", "star", "square")
    ends = "on grass", "above a circle", "left of a star", "in the street", "again"
    texts = [" ".join(each) for each in product(*parts, ends, ("", "and a man", "and two dogs"))]
    words.write_text("\n".join(texts), encoding="utf-8")
    command = ["index", "fit", str(built), "--words", str(words), "--dim", "4"]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["generation"], report["texts"]) == (2, len(texts))
    shown = CliRunner().invoke(app, ["index", "info", str(built)]).stdout
    assert "fitted first stage" in shown
    assert f"{report['first_stage']['dim']} values, Flat, finds 100.0 % of the nearest" in shown
    info = json.loads(CliRunner().invoke(app, ["index", "info", str(built), "--json"]).stdout)
    assert info["sides"]["images"]["learned"] == report["first_stage"]
    assert info["sides"]["texts"]["learned"] is None
    found = CliRunner().invoke(app, ["search", str(built), "a red circle", "--json"])
    assert found.exit_code == 0, found.stderr
    assert len(json.loads(found.stdout)["hits"]) == 6


def test_too_few_texts_are_refused_and_nothing_is_published(built: Path) -> None:
    result = CliRunner().invoke(app, ["index", "fit", str(built)])
    assert result.exit_code != 0
    assert "expected at least 200 texts" in result.stderr
    assert (built / "CURRENT").read_text().strip() == "000001"
