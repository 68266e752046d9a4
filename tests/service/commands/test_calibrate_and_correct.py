"""``aladin calibrate`` and ``aladin correct``: what they store and print."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.reader import open_index
from aladin_network.calibration.calibration import CALIBRATION, DataSample, read_calibration
from aladin_network.checkpoint_files import read_model_id
from aladin_network.scoring.hub_correction import CORRECTION, read_correction
from tests.service.commands.conftest import aladin, aladin_json, made_up_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty photos to fit to and six to report on, with two captions each."""
    folder = tmp_path_factory.mktemp("calibrated")
    return made_up_data(folder, ["val"] * 20 + ["test"] * 6, (3, 6))


def test_a_checkpoint_is_calibrated(checkpoint: Path, data: Path) -> None:
    printed = aladin_json("calibrate", checkpoint, data, "--false-alarms", 0.1)
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
    said = aladin("calibrate", tiny_checkpoint, data, "--index", index, "--report-split", "test")
    assert live_generation(index) == 2
    calibration = read_manifest(generation_folder(index, 2)).calibration
    assert calibration is not None
    assert (calibration.fitted_on.searched, calibration.measured_on) == ("index", "test")
    assert not (tiny_checkpoint / CALIBRATION).exists()
    assert "data data.jsonl, split val, photos 20, texts 40" in " ".join(said.stdout.split())
    assert f"{index}: calibrated, generation 2" in said.stdout


def test_a_checkpoint_is_corrected_evaluated_and_indexed(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    data = made_up_data(tmp_path / "photos", ["train"] * 40 + ["val"] * 6, (3, 6, 2))
    monkeypatch.setattr("aladin_training.correction._LEAST", 41)
    said = aladin("correct", checkpoint, data, code=2).stderr
    assert "expected at least 41 training photos" in said
    assert not (checkpoint / CORRECTION).exists()

    monkeypatch.setattr("aladin_training.correction._LEAST", 2)
    (checkpoint / CALIBRATION).write_text("{}", encoding="utf-8")
    printed = aladin_json("correct", checkpoint, data)
    assert not (checkpoint / CALIBRATION).exists()
    stored = read_correction(checkpoint, read_model_id(checkpoint))
    assert stored is not None
    bank, chosen_on = printed["bank"]["photos"], printed["selection"]["photos"]
    assert bank + chosen_on == 40
    assert (len(stored.images.embeddings), len(stored.texts.embeddings)) == (bank, 2 * bank)
    assert printed["selection"]["split"] == "train, trained on as well"
    for name in ("matching", "alignment"):
        assert printed["metrics"][f"corrected_{name}"]["rsum"] >= printed["metrics"][name]["rsum"]

    evaluate, index = ["evaluate", checkpoint, data, "--split", "val"], tmp_path / "index"
    figures = aladin_json(*evaluate)
    gain, corrected = figures["corrected_fused_minus_fused"], figures["corrected_fused"]
    assert gain["rsum"] == pytest.approx(corrected["rsum"] - figures["fused"]["rsum"], abs=1e-2)
    assert gain["low"] <= gain["rsum"] <= gain["high"]

    sources = ["--images", data, "--texts", data, "--split", "val"]
    aladin("index", "build", "--model", checkpoint, *sources, "--out", index)
    with open_index(index) as opened:
        assert opened.manifest.correction == stored.constants
    told = aladin("index", "info", index).stdout
    assert "correction" in told and "text to image" in told
    served = aladin_json(*evaluate, "--index", index)["two_stage"]
    for direction in ("text_to_image", "image_to_text"):  # so few items are all candidates
        assert served[direction]["r1"] == corrected[direction]["r1"]
    engine = ["--url", "http://127.0.0.1:1", "--name", "photos", "--out", tmp_path / "pushed"]
    assert "hubness correction" in aladin("index", "push", index, *engine, code=2).stderr
