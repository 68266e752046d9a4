"""``aladin evaluate --curve``: what it prints, writes and keeps with the index."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image
from typer.testing import CliRunner

from aladin_index.measure.curve import DEFAULT_NUMBERS
from aladin_service.cli import app
from aladin_service.commands.evaluate import evaluate


class Run(NamedTuple):
    """What one call left behind."""

    data: dict[str, Any]
    index: Path
    file: Path


@pytest.fixture(scope="module")
def run(
    tiny_checkpoint: Path,
    data_file: Path,
    index_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """A curve of all photos, drawn as a PNG."""
    folder = tmp_path_factory.mktemp("curve")
    index = Path(shutil.copytree(index_folder, folder / "index"))
    words = [tiny_checkpoint, data_file, "--split", "all", "--index", index, "--json"]
    words += ["--curve", folder / "curve.png", "--curve-candidates", "2,4,50"]
    result = CliRunner().invoke(app, ["evaluate", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    assert "warning" not in result.stderr
    return Run(json.loads(result.stdout), index, folder / "curve.png")


def test_the_json_has_exactly_the_documented_shape(run: Run) -> None:
    curve = run.data["curve"]
    assert list(curve) == [
        "points",
        "default_candidates",
        "items",
        "texts",
        "images",
        "resamples",
        "timed",
    ]
    assert curve["default_candidates"] == {"text_to_image": 100, "image_to_text": 100}
    assert curve["items"] == {"text_to_image": 6, "image_to_text": 12}
    assert (curve["texts"], curve["images"], curve["timed"]) == (12, 6, 12)
    # Fifty and the default are more than there are: all.
    assert [point["candidates"] for point in curve["points"]] == [1, 2, 4, 12]
    for point in curve["points"]:
        assert list(point) == ["candidates", "fitted", "papers", "ms"]
        for rule in ("fitted", "papers"):
            assert list(point[rule]) == ["text_to_image", "image_to_text", "rsum", "rsum_gain"]
            for direction in ("text_to_image", "image_to_text"):
                assert list(point[rule][direction]) == ["r1", "r1_gain", "agreement"]
            for estimate in (
                point[rule]["rsum"],
                point[rule]["rsum_gain"],
                point[rule]["text_to_image"]["r1"],
                point[rule]["image_to_text"]["r1_gain"],
            ):
                assert list(estimate) == ["value", "low", "high"]
        for time in point["ms"].values():
            assert list(time) == ["median", "p95"]


def test_the_ends_are_matching_alone_and_the_exhaustive_order(run: Run) -> None:
    first, last = run.data["curve"]["points"][0], run.data["curve"]["points"][-1]
    for system, end in (("matching", first["papers"]), ("fused", last["fitted"])):
        metrics = run.data[system]
        assert end["rsum"]["value"] == pytest.approx(metrics["rsum"], abs=0.01)
        for direction in ("text_to_image", "image_to_text"):
            assert end[direction]["r1"]["value"] == pytest.approx(
                metrics[direction]["r1"], abs=0.01
            )
    assert last["papers"]["rsum"]["value"] == pytest.approx(run.data["alignment"]["rsum"], abs=0.01)
    assert last["fitted"]["text_to_image"]["agreement"] == 100.0


def test_the_picture_is_drawn_in_colours_that_also_differ_in_grey(run: Run) -> None:
    with Image.open(run.file) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 900
        colours = {colour for _, colour in picture.convert("RGB").getcolors(2**24) or []}
        assert {(0x00, 0x45, 0x7C), (0xD5, 0x5E, 0x00)} <= colours


def test_the_picture_is_named_after_the_data_set_alone(
    tiny_checkpoint: Path,
    data_file: Path,
    index_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    titles: list[str] = []
    monkeypatch.setattr(
        "aladin_service.reports.curve_plot.write_curve", lambda *args: titles.append(args[-1])
    )
    index = shutil.copytree(index_folder, tmp_path / "index")
    named = tmp_path / "holidays" / "captions.jsonl"
    named.parent.mkdir()
    lines = [json.loads(line) for line in data_file.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line["image"] = str(data_file.parent / line["image"])
    named.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    words = [tiny_checkpoint, named, "--split", "all", "--index", index]
    words += ["--curve", tmp_path / "curve.png", "--curve-candidates", "2"]
    result = CliRunner().invoke(app, ["evaluate", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    assert titles == ["holidays, split all"]


def test_the_table_and_a_file_of_numbers(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path, run: Run
) -> None:
    words = [tiny_checkpoint, data_file, "--split", "all", "--index", run.index]
    words += ["--curve", tmp_path / "curve.json", "--curve-candidates", "2,4"]
    result = CliRunner().invoke(app, ["evaluate", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    written = json.loads((tmp_path / "curve.json").read_text())
    for ours, before in zip(written["points"], run.data["curve"]["points"], strict=True):
        assert ours["fitted"] == before["fitted"]
        assert ours["papers"] == before["papers"]
    fitted, papers = written["points"][1]["fitted"], written["points"][1]["papers"]
    assert "two-stage, fusion as fitted" in result.stdout
    assert "two-stage, fusion 1 (the papers' rule)" in result.stdout
    for quality in (fitted, papers):
        gain = quality["rsum_gain"]
        assert f"{gain['value']:+.1f} ({gain['low']:+.1f}, {gain['high']:+.1f})" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 132


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--curve", "c.png"], "--curve: expected also --index"),
        (["--index", "i", "--curve-candidates", "5"], "--curve-candidates: expected also --curve"),
        (
            ["--index", "i", "--curve", "c.gif"],
            "--curve: expected a name with one of .json, .pdf, .png, .svg, got c.gif",
        ),
        (
            ["--index", "i", "--curve", "c.png", "--curve-candidates", "5,many"],
            "--curve-candidates: expected whole numbers and commas, got '5,many'",
        ),
        (
            ["--index", "i", "--curve", "c.png", "--curve-candidates", "10,5"],
            "numbers of candidates: expected ascending ones from 1, got 10,5",
        ),
        (
            ["--index", "i", "--curve", "c.png", "--curve-candidates", "0,5"],
            "numbers of candidates: expected ascending ones from 1, got 0,5",
        ),
    ],
)
def test_options_that_ask_for_no_curve_are_refused_before_any_work(
    words: list[str], says: str
) -> None:
    result = CliRunner().invoke(app, ["evaluate", "no-checkpoint", "no-data", *words])
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_the_help_names_the_numbers_that_are_taken_by_default() -> None:
    option = inspect.signature(evaluate, eval_str=True).parameters["curve_candidates"].annotation
    shown = ",".join(map(str, DEFAULT_NUMBERS))
    assert option.__metadata__[0].help.endswith(f"[default: {shown}]")


def test_a_file_that_cannot_be_written(
    index_folder: Path, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    index = shutil.copytree(index_folder, tmp_path / "index")
    words = [tiny_checkpoint, data_file, "--split", "all", "--index", index]
    words += ["--curve", tmp_path / "file" / "curve.json", "--curve-candidates", "2"]
    result = CliRunner().invoke(app, ["evaluate", *map(str, words)])
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
