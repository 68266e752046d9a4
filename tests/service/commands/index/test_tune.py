"""``aladin index tune`` and what ``aladin index info`` says of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from aladin_service.cli import app

FEW = ["--at", "2", "--num-queries", "8", "--candidates", "12", "--fidelity", "0.5"]


def aladin(*words: object) -> Result:
    """Run a command line; it has to succeed."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture
def built(index_folder: Path, tmp_path: Path) -> Path:
    """An index of six photos and their captions that a test may change."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


def test_tune_publishes_what_it_prints(built: Path, tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    tuned = json.loads(aladin("index", "tune", built, *FEW, "--json", "--plot", picture).stdout)
    assert tuned["generation"] == 2
    info = json.loads(aladin("index", "info", built, "--json").stdout)
    for target in ("images", "texts"):
        assert info[target]["ann"] == tuned[target]["ann"]
        assert info[target]["tuning"] == tuned[target]["tuning"]
        assert tuned[target]["tuning"]["fidelity"] >= 0.5
        assert tuned[target]["ann"]["curve"][0]["search_ms"] > 0
    with Image.open(picture) as drawn:
        assert drawn.format == "PNG"
        assert drawn.width > drawn.height > 500
        assert len(drawn.convert("RGB").getcolors(maxcolors=2**20) or []) > 10


def test_info_shows_both_curves_and_the_rest(built: Path, tmp_path: Path) -> None:
    before = aladin("index", "info", built).stdout
    assert before.count("added 0, removed 0") == 2
    tuning = json.loads(aladin("index", "tune", built, *FEW, "--json").stdout)["images"]["tuning"]
    shown = aladin("index", "info", built, "--plot", tmp_path / "info.png").stdout
    assert f"candidates {tuning['candidates']}, fidelity {tuning['fidelity']:.4g}" in shown
    assert "images: first stage, Flat" in shown
    lines = shown.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("images: both stages"))
    row = next(line for line in lines[start:] if "chosen" in line)
    assert row.split("│")[1].strip() == str(tuning["candidates"])
    assert (tmp_path / "info.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["lines", "data set"])
def test_queries_of_a_file(built: Path, data_file: Path, tmp_path: Path, kind: str) -> None:
    source = data_file
    if kind == "lines":
        source = tmp_path / "queries.txt"
        source.write_text("a red square\n\na dog runs\n", encoding="utf-8")
    tuned = json.loads(aladin("index", "tune", built, *FEW, "--json", "--queries", source).stdout)
    assert tuned["images"]["tuning"]["queries"] == (2 if kind == "lines" else 8)
    # Photos come from the file where it has some, else from the index.
    assert tuned["texts"]["tuning"]["queries"] == 6


def test_a_goal_that_was_not_reached_is_a_warning(built: Path) -> None:
    few = ["--at", "1", "--candidates", "1", "--fidelity", "1"]
    result = aladin("index", "tune", built, *few)
    assert "warning: images: 1 candidates keep 0." in result.stderr
    assert "of the exhaustive top 1, 1.0 was wanted; 1 are stored" in result.stderr
    assert f"{built}: generation 2" in result.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--fidelity", "2"], "fidelity: expected more than 0 and at most 1, got 2.0"),
        (["--plot", "curves.svg", *FEW], "expected the name of a .png file"),
    ],
)
def test_mistakes_are_named(built: Path, words: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["index", "tune", str(built), *words])
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_file_without_queries_is_refused(built: Path, tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("\n", encoding="utf-8")
    result = CliRunner().invoke(
        app, ["index", "tune", str(built), "--queries", str(tmp_path / "none.txt")]
    )
    assert result.exit_code == 2
    assert "expected texts or photos" in result.stderr


def test_the_network_runs_on_the_device_of_the_option(
    built: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    tune = ["index", "tune", str(built), *FEW, "--queries", str(data_file)]
    result = CliRunner().invoke(app, [*tune, "--device", "cuda"])
    assert result.exit_code == 2
    assert "--device cuda: PyTorch finds no CUDA device here" in result.stderr
    aladin(*tune, "--device", "auto")
