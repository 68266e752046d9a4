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
from aladin_network.calibration.calibration import CALIBRATION, DataSample, read_calibration
from aladin_network.checkpoint_files import read_model_id
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


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


def test_a_checkpoint_is_calibrated(checkpoint: Path, data: Path) -> None:
    result = calibrate(checkpoint, data, "--false-alarms", 0.1, "--json")
    assert result.exit_code == 0, result.stderr
    printed: dict[str, Any] = json.loads(result.stdout)
    stored = read_calibration(checkpoint, read_model_id(checkpoint))
    assert stored is not None
    assert printed["generation"] is None
    assert printed["text_to_image"] == asdict(stored.text_to_image)
    assert printed["fitted_on"] == {
        "data": "data.jsonl",
        "split": "val",
        "photos": 20,
        "texts": 40,
        "short_texts": stored.fitted_on.short_texts,
        "searched": "split",
        "correction": "none",
    }
    assert stored.fitted_on.short_texts > 0
    assert stored.fitted_on.data_sample == DataSample.of(f"{number}.png" for number in range(26))
    assert stored.measured_on == "out of fold"
    assert 0 <= stored.text_to_image.figures.auroc <= 1


def test_an_index_is_calibrated_with_photos_that_it_lacks(
    tiny_checkpoint: Path, data: Path, index: Path
) -> None:
    words = ["--index", index, "--report-split", "test"]
    result = calibrate(tiny_checkpoint, data, *words)
    assert result.exit_code == 0, result.stderr
    assert live_generation(index) == 2
    manifest = read_manifest(generation_folder(index, 2))
    assert manifest.calibration is not None
    assert manifest.calibration.fitted_on.searched == "index"
    assert manifest.calibration.measured_on == "test"
    assert not (tiny_checkpoint / CALIBRATION).exists()
    assert "data data.jsonl, split val, photos 20, texts 40" in " ".join(result.stdout.split())
    assert f"{index}: calibrated, generation 2" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--false-alarms", "1"], "false_alarms: expected at least 0 and less than 1, got 1.0"),
        (["--report-split", "val"], "report_split: expected a split other than the fitted one"),
        (["--split", "dev"], "has no split 'dev', known are ['test', 'val']"),
        (["--split", "test"], "expected at least 20 photos with captions, found 6"),
    ],
)
def test_impossible_calibrations_are_refused(
    tiny_checkpoint: Path, data: Path, words: list[str], message: str
) -> None:
    result = calibrate(tiny_checkpoint, data, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "photos, in" not in result.stderr  # nothing was encoded before
    assert result.stdout == ""
    assert not (tiny_checkpoint / CALIBRATION).exists()
