"""``aladin index tune`` and what ``aladin index info`` says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.service.commands.conftest import aladin, aladin_json

FEW = ["--at", "2", "--num-queries", "8", "--candidates", "12", "--fidelity", "0.5"]


def test_tune_publishes_what_it_prints_and_draws(index: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "tune.png", tmp_path / "info.png"
    assert aladin("index", "info", index).stdout.count("added 0, removed 0") == 2
    tuned = aladin_json("index", "tune", index, *FEW, "--plot", pictures[0])
    assert tuned["generation"] == 2
    info = aladin_json("index", "info", index)
    for target in ("images", "texts"):
        assert {name: info[target][name] for name in ("ann", "tuning")} == tuned[target]
        assert tuned[target]["tuning"]["fidelity"] >= 0.5
        assert tuned[target]["ann"]["curve"][0]["search_ms"] > 0
    tuning = tuned["images"]["tuning"]
    lines = aladin("index", "info", index, "--plot", pictures[1]).stdout.splitlines()
    shown = "\n".join(lines)
    assert f"candidates {tuning['candidates']}, fidelity {tuning['fidelity']:.4g}" in shown
    assert "images: first stage, Flat" in shown
    start = next(i for i, line in enumerate(lines) if line.startswith("images: both stages"))
    row = next(line for line in lines[start:] if "chosen" in line)
    assert row.split("│")[1].strip() == str(tuning["candidates"])
    for picture in pictures:
        with Image.open(picture) as drawn:
            assert drawn.format == "PNG" and drawn.width > drawn.height > 500
            assert len(drawn.convert("RGB").getcolors(maxcolors=2**20) or []) > 10


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [("queries.txt", "a red square\n\na dog runs\n", 2), ("data.jsonl", None, 8)],
)
def test_queries_come_from_a_file_and_run_on_the_device_of_the_option(
    index: Path, data_file: Path, tmp_path: Path, name: str, content: str | None, count: int
) -> None:
    source = data_file
    if content is not None:
        source = tmp_path / name
        source.write_text(content, encoding="utf-8")
    tune = ["index", "tune", index, *FEW, "--queries", source, "--device", "auto"]
    tuned = aladin_json(*tune)
    # Photos come from the file where it has some, else from the index.
    found = [tuned[target]["tuning"]["queries"] for target in ("images", "texts")]
    assert found == [count, 6]


def test_a_goal_that_was_not_reached_is_a_warning(index: Path) -> None:
    result = aladin("index", "tune", index, "--at", 1, "--candidates", 1, "--fidelity", 1)
    assert "warning: images: 1 candidates keep 0." in result.stderr
    assert "of the exhaustive top 1, 1.0 was wanted; 1 are stored" in result.stderr
    assert f"{index}: generation 2" in result.stdout
