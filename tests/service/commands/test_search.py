"""``aladin search`` of a service, which prints what a search of its index prints."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_network.calibration.calibration import Calibration
from aladin_service.cli import app
from aladin_service.evidence.png import read_evidence


def aladin(*words: object) -> str:
    """What a command line prints; it has to succeed."""
    result = CliRunner().invoke(app, ["search", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def close(found: Any, expected: Any) -> bool:
    """Whether two answers agree; queries that are encoded by other threads differ in rounding."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            name == "took_ms" or close(found[name], expected[name]) for name in expected
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, float):
        return found == pytest.approx(expected, abs=1e-4)
    return found == expected


@pytest.mark.parametrize(
    "words",
    [
        ["a red dog", "-k", "3", "--explain", "--timeout-ms", "60000"],
        ["--id", "plain", "--target", "texts", "--no-rerank", "--filter", '{"tags": "even"}'],
        ["--image", "PHOTO", "--candidates", "4", "--fusion", "0.25"],
        ["a red dog", "--candidates", "exhaustive", "--fusion", "0.5"],
        ["a red dog", "--and", "a car", "--not", "people", "--image", "PHOTO", "--explain"],
        ["--like", "plain", "--like", "ünïcode", "--not", "a dog", "--target", "images"],
        ["--id", "plain", "--box", "0,0.25,0.5,1", "--explain"],
        ["--image", "PHOTO", "--box", "0,0.25,0.5,1", "--target", "texts"],
        ["a red dog", "--id", "plain", "--box", "0,0.25,0.5,1", "--and", "a car"],
    ],
)
def test_both_ways_print_the_same(
    url: str, index_folder: Path, data_file: Path, words: list[str]
) -> None:
    photo = str(data_file.parent / "photo-2.png")
    words = [photo if word == "PHOTO" else word for word in words]
    here, there = aladin(index_folder, *words, "--json"), aladin("--url", url, *words, "--json")
    assert close(json.loads(there), json.loads(here))
    assert here.splitlines()[:3] == there.splitlines()[:3]
    assert aladin("--url", url, *words).splitlines()[0].split()[:2] == ["rank", "score"]


def test_a_calibrated_index_prints_probabilities(calibrated_index: Path) -> None:
    words = (calibrated_index, "a red dog", "-k", "3")
    answer = json.loads(aladin(*words, "--json"))
    heading, *lines = aladin(*words).splitlines()
    assert heading.split() == ["rank", "score", "match", "align", "prob.", "item"]
    assert len(lines) == 3
    for line, hit in zip(lines, answer["hits"], strict=True):
        # Rank, score, and of both stages a score and a rank come before it.
        assert line.split()[6] == f"{hit['probability']:.3f}"
    heading, last = aladin(*words, "--min-probability", "1").splitlines()
    assert last == "nothing is likely to match"


def test_probabilities_that_are_not_reliable_are_not_shown(
    index_folder: Path, tmp_path: Path, make_calibration: Callable[..., Calibration]
) -> None:
    root = Path(shutil.copytree(index_folder, tmp_path / "index"))
    made = make_calibration(describe(root).model.id)
    store_calibration(root, replace(made, other_photos=True))
    words = (root, "a red dog", "-k", "3")
    heading, *lines = aladin(*words).splitlines()
    assert heading.split() == ["rank", "score", "match", "align", "item"]
    assert len(lines) == 3
    assert lines == aladin(index_folder, *words[1:]).splitlines()[1:]
    assert json.loads(aladin(*words, "--json"))["no_match"] is None
    *same, last = aladin(*words, "--min-probability", "1").splitlines()
    assert same == [heading, *lines]
    assert last == (
        "--min-probability was not applied: the index's calibration was fitted on other data, to "
        "which most of these photos do not belong; aladin calibrate CHECKPOINT DATA --index INDEX "
        "fits one to the index"
    )


@pytest.mark.parametrize(
    ("filter_json", "says"),
    [
        ('{"wheels": 4}', "no item has a field 'wheels' to filter by; there are number, tags"),
        ('{"number": 99}', "nothing passes the filter"),
    ],
)
def test_one_line_says_why_nothing_passes_a_filter(
    calibrated_index: Path, index_folder: Path, url: str, filter_json: str, says: str
) -> None:
    words = ["a red dog", "--filter", filter_json]
    for where in ([calibrated_index], [index_folder], ["--url", url]):
        assert aladin(*where, *words).splitlines() == [says]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["a red dog"], 1),
        (["a red dog", "-k", "3", "--no-rerank"], 3),
        (["--id", "plain", "--target", "texts", "-k", "2"], 2),
        (["--image", "PHOTO", "-k", "2"], 2),
        (["--image", "PHOTO", "-k", "2", "--box", "0,0.25,0.5,1"], 2),
        (["--id", "plain", "-k", "2", "--box", "0,0.25,0.5,1"], 2),
    ],
)
def test_both_ways_draw_the_same(
    url: str, index_folder: Path, data_file: Path, tmp_path: Path, words: list[str], count: int
) -> None:
    photo = str(data_file.parent / "photo-2.png")
    words = [photo if word == "PHOTO" else word for word in words]
    words += ["--explain", "--json", "--out"]
    here, there = tmp_path / "here.png", tmp_path / "made" / "there.PNG"
    hits = json.loads(aladin(index_folder, *words, here))["hits"]
    assert len(hits) == count
    assert len(json.loads(aladin("--url", url, *words, there))["hits"]) == count
    drawn = read_evidence(here.read_bytes())
    assert len(drawn) == count
    for pair, hit in zip(drawn, hits, strict=True):
        assert hit["id"] in (pair.photo_id, pair.text_id)
        assert pair.align == pytest.approx(hit["stages"]["align"]["score"], abs=1e-5)
        drawn_of = pair.evidence or pair.region_evidence or []
        told = hit["evidence"] or hit["region_evidence"]
        assert [each.score for each in drawn_of] == [
            pytest.approx(each["score"], abs=1e-5) for each in told
        ]
        assert sum(each.score for each in drawn_of) == pytest.approx(pair.align, abs=1e-4)
    for one, other in zip(drawn, read_evidence(there.read_bytes()), strict=True):
        assert close(other.model_dump(mode="json"), one.model_dump(mode="json"))
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["here.png"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a dog", "--out", "x.png"], "--out: expected --explain too"),
        (["a dog", "--explain", "--out", "x.jpg"], "ends in .png, got x.jpg"),
        (["a dog", "--explain", "--out", "x.png", "-k", "21"], "at most 20, got 21"),
        (["--id", "plain", "--explain", "--out", "x.png"], "there is no evidence to draw"),
        (
            ["a dog", "--explain", "--out", "x.png", "--filter", '{"tags": "none"}'],
            "nothing was found",
        ),
    ],
)
def test_an_impossible_drawing_is_refused_and_leaves_no_file(
    index_folder: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    words = [str(tmp_path / word) if word.startswith("x.") else word for word in words]
    result = CliRunner().invoke(app, ["search", str(index_folder), *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(index_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "x.png"
    words = ["search", str(index_folder), "a dog", "--explain", "--out", str(out)]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout) == (2, "")
    said = " ".join(result.stderr.split())
    assert f"--out: {out} cannot be written (" in said
    assert ".partial" not in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--url", "URL", "index", "a dog"], "exactly one of INDEX and --url, got both"),
        (["--url", "URL"], "exactly one of text, image, id, regions, or the"),
        (["--url", "URL", "a dog", "--id", "b"], "got text and id"),
        (["--url", "URL", "a dog", "--device", "auto"], "a service has its own"),
        (["--url", "URL", "--id", "nobody"], "no item 'nobody'"),
        (["--url", "URL", " "], "the text is empty"),
        (["--url", "localhost", "a dog"], "http://127.0.0.1:8000"),
        (["--id", "nobody"], "exactly one of INDEX and --url, got neither"),
        (["--url", "URL", "a dog", "--box", "0,0,1,1"], "box: expected a photo beside it"),
        (["--url", "URL", "--id", "plain", "--box", "0,0,1"], "--box: expected x0, y0, x1, y1 in"),
        (
            ["--url", "URL", "--id", "plain", "--box", "0,0,1,2"],
            "--box: expected x0, y0, x1, y1 in",
        ),
        (["--url", "URL", "--id", "plain", "--box", "all"], "--box: expected x0,y0,x1,y1, got"),
        (["--url", "URL", "--id", "plain#0", "--box", "0,0,1,1"], "box: expected a photo to take"),
        (["--url", "URL", "a dog", "--min-probability", "0.5"], "the index is not calibrated"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_two(url: str, words: list[str], says: str) -> None:
    words = [url if word == "URL" else word for word in words]
    result = CliRunner().invoke(app, ["search", *words])
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_a_service_is_asked_without_what_searches_need(url: str) -> None:
    script = f"""
import sys
from aladin_service.cli import app
app(["search", "--url", {url!r}, "a dog"], standalone_mode=False)
heavy = {{"torch", "numpy", "faiss", "fastapi", "PIL"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE)
