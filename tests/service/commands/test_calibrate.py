"""``aladin calibrate``: what it stores, what it prints, and what it refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.manifest import read_manifest
from aladin_network.calibration.calibration import CALIBRATION, read_calibration
from aladin_network.calibration.fitted_on import TextLengths, sample_photos
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.inference import encode_texts
from aladin_service.cli import app

WORDS = ("red", "dog", "man", "street", "star", "grass", "blue", "circle")


def calibrate(*words: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["calibrate", *(str(word) for word in words)])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty photos to fit to and six to report on, with two captions each."""
    folder = tmp_path_factory.mktemp("calibrated")
    generator = np.random.default_rng(0)
    lines: list[str] = []
    for number in range(26):
        colours = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(colours).save(folder / f"{number}.png")
        captions = [" ".join(generator.choice(WORDS, size=length)) for length in (3, 6)]
        split = "val" if number < 20 else "test"
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions, "split": split}))
    file = folder / "data.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def few_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have two folds of each kind: every one takes a fit for each choice."""
    monkeypatch.setattr("aladin_network.calibration.logistic_fit.CHOOSING_FOLDS", 2)
    monkeypatch.setattr("aladin_network.calibration.logistic_fit.JUDGING_FOLDS", 2)


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


def test_a_checkpoint_is_calibrated(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    plot = tmp_path / "reliability.png"
    result = calibrate(checkpoint, data, "--plot", plot, "--false-alarms", 0.1, "--json")
    assert result.exit_code == 0, result.stderr
    printed: dict[str, Any] = json.loads(result.stdout)
    captions = [
        caption
        for line in map(json.loads, data.read_text(encoding="utf-8").splitlines())
        if line["split"] == "val"
        for caption in line["captions"]
    ]
    encoded = encode_texts(load_checkpoint(checkpoint).model, captions)
    lengths = encoded.mask.sum(axis=1).tolist()
    stored = read_calibration(checkpoint, read_model_id(checkpoint))
    assert stored is not None
    aligned = printed["figures"]["text_to_image"]["aligned"]
    assert aligned["no_match"]["below"] == pytest.approx(
        stored.text_to_image.aligned.no_match_below, abs=1e-6
    )
    assert printed["generation"] is None
    assert printed["fitted_on"] == {
        "data": "data.jsonl",
        "split": "val",
        "photos": 20,
        "texts": 40,
        "searched": "split",
        "prior": 0.5,
        "text_lengths": asdict(TextLengths.of(np.array(lengths))),
        "correction": "none",
    }
    ids = [f"{number}.png" for number in range(20)]
    assert stored.fitted_on.photo_sample == sample_photos(ids)
    figures = stored.figures
    assert (figures.measured_on, figures.photos) == ("out of fold", 20)
    matching = printed["figures"]["text_to_image"]["matching"]
    assert matching["match"]["ece"] == pytest.approx(
        figures.text_to_image.matching.match.ece, abs=1e-6
    )
    assert matching["match"]["base_rate"] == 0.5
    assert matching["hits"]["base_rate"] < 0.1
    with Image.open(plot) as picture:
        assert picture.format == "PNG"


def test_an_index_is_calibrated_with_photos_that_it_lacks(
    tiny_checkpoint: Path, data: Path, index: Path
) -> None:
    words = ["--index", index, "--report-split", "test", "--prior", 0.8]
    result = calibrate(tiny_checkpoint, data, *words)
    assert result.exit_code == 0, result.stderr
    assert live_generation(index) == 2
    manifest = read_manifest(generation_folder(index, 2))
    assert manifest.calibration is not None
    assert manifest.calibration.fitted_on.searched == "index"
    figures = manifest.calibration.figures
    assert (figures.measured_on, figures.photos) == ("test", 6)
    assert figures.text_to_image.aligned.match.base_rate == pytest.approx(0.8)
    assert not (tiny_checkpoint / CALIBRATION).exists()
    assert "which searched the index; a match is expected for 80%" in result.stdout
    assert "figures: test, 6 photos" in result.stdout
    assert f"{index}: calibrated, generation 2" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prior", "1"], "prior: expected more than 0 and less than 1, got 1.0"),
        (["--false-alarms", "1"], "false_alarms: expected at least 0 and less than 1, got 1.0"),
        (["--report-split", "val"], "report_split: expected a split other than the fitted one"),
        (["--plot", "curve.svg"], "--plot: expected the name of a .png file, got curve.svg"),
        (["--split", "dev"], "has no split 'dev', known are ['test', 'val']"),
        (["--split", "test"], "expected at least 20 photos with captions, found 6"),
    ],
)
def test_what_cannot_be_is_refused(
    tiny_checkpoint: Path, data: Path, words: list[str], message: str
) -> None:
    result = calibrate(tiny_checkpoint, data, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "photos, in" not in result.stderr  # nothing was encoded before
    assert result.stdout == ""
    assert not (tiny_checkpoint / CALIBRATION).exists()
