"""``aladin correct``: what it stores, what it prints, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from aladin_index.generations.reader import open_index
from aladin_network.calibration.calibration import CALIBRATION
from aladin_network.checkpoint_files import read_model_id
from aladin_network.scoring.hub_correction import CORRECTION, read_correction
from aladin_service.cli import app

WORDS = ("red", "dog", "man", "street", "star", "grass", "blue", "circle")


def run(*words: object) -> Result:
    """Run `aladin`."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty training photos and six others, with three captions each."""
    folder = tmp_path_factory.mktemp("corrected")
    generator = np.random.default_rng(0)
    lines: list[str] = []
    for number in range(46):
        colours = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(colours).save(folder / f"{number}.png")
        captions = [" ".join(generator.choice(WORDS, size=length)) for length in (3, 6, 2)]
        split = "train" if number < 40 else "val"
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions, "split": split}))
    file = folder / "data.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("aladin_training.correction._LEAST", 2)
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


def test_a_checkpoint_is_corrected_evaluated_and_indexed(
    checkpoint: Path, data: Path, tmp_path: Path
) -> None:
    (checkpoint / CALIBRATION).write_text("{}", encoding="utf-8")
    result = run("correct", checkpoint, data, "--json")
    assert result.exit_code == 0, result.stderr
    assert "removed; aladin calibrate" in result.stderr
    assert not (checkpoint / CALIBRATION).exists()
    printed: dict[str, Any] = json.loads(result.stdout)
    stored = read_correction(checkpoint, read_model_id(checkpoint))
    assert stored is not None
    bank, chosen_on = printed["bank"]["photos"], printed["selection"]["photos"]
    assert bank + chosen_on == 40
    assert (len(stored.images.embeddings), len(stored.texts.embeddings)) == (bank, 2 * bank)
    assert printed["selection"]["split"] == "train, trained on as well"
    for name in ("matching", "alignment"):
        assert printed["metrics"][f"corrected_{name}"]["rsum"] >= printed["metrics"][name]["rsum"]

    evaluated = run("evaluate", checkpoint, data, "--split", "val", "--json")
    assert evaluated.exit_code == 0, evaluated.stderr
    figures: dict[str, Any] = json.loads(evaluated.stdout)
    gain = figures["corrected_fused_minus_fused"]
    difference = figures["corrected_fused"]["rsum"] - figures["fused"]["rsum"]
    assert gain["rsum"] == pytest.approx(difference, abs=1e-2)
    assert gain["low"] <= gain["rsum"] <= gain["high"]

    index = tmp_path / "index"
    sources = ("--images", data, "--texts", data, "--split", "val")
    built = run("index", "build", "--model", checkpoint, *sources, "--out", index)
    assert built.exit_code == 0, built.stderr
    with open_index(index) as opened:
        assert opened.manifest.correction == stored.constants
    told = run("index", "info", index)
    assert "correction" in told.stdout
    assert "text to image" in told.stdout
    of_index = run("evaluate", checkpoint, data, "--split", "val", "--index", index, "--json")
    assert of_index.exit_code == 0, of_index.stderr
    served = json.loads(of_index.stdout)["two_stage"]
    # So few items are all candidates.
    for direction in ("text_to_image", "image_to_text"):
        assert served[direction]["r1"] == figures["corrected_fused"][direction]["r1"]
    pushed = run(
        *("index", "push", index, "--url", "http://127.0.0.1:1", "--name", "photos"),
        *("--out", tmp_path / "pushed"),
    )
    assert pushed.exit_code == 2
    assert "hubness correction" in pushed.stderr


def test_too_few_photos_are_refused(
    checkpoint: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_training.correction._LEAST", 20)
    result = run("correct", checkpoint, data)
    assert result.exit_code == 2
    assert "expected at least 20 training photos" in result.stderr
    assert not (checkpoint / CORRECTION).exists()
