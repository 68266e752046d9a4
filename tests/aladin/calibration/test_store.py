"""The calibration file of a checkpoint: whole, or not there; and of these weights, or refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aladin_network.calibration.calibration import (
    CALIBRATION,
    Calibration,
    DirectionCalibration,
    ProbabilityModels,
    read_calibration,
    write_calibration,
)
from aladin_network.calibration.examples import AskedQuery, make_examples
from aladin_network.calibration.features import LogisticModel, Term
from aladin_network.calibration.fit import compare_with_thresholds, measure
from aladin_network.calibration.fitted_on import FittedOn
from aladin_network.calibration.measures import CalibrationFigures, DirectionFigures
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import CheckpointError


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may damage."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


@pytest.fixture
def calibration(folder: Path, draw_queries: Callable[..., list[AskedQuery]]) -> Calibration:
    """Of the checkpoint in `folder`, with numbers that nobody fitted."""
    model = LogisticModel(
        intercept=-1.5, terms=[Term(feature="match", mean=0.1, deviation=0.3, weight=2.0)]
    )
    models = ProbabilityModels(hit=model, match=model, no_match_below=0.5)
    of_direction = DirectionCalibration(aligned=models, matching=models)
    examples = make_examples(draw_queries(3), 100, 0.5, None)
    measured = measure(
        examples,
        model.probability(examples.hits.features),
        model.probability(examples.match.features),
        compare_with_thresholds(examples, model.probability(examples.match.features)),
        models.no_match_below,
    )
    figures = DirectionFigures(aligned=measured, matching=measured)
    return Calibration(
        model_id=read_model_id(folder),
        text_to_image=of_direction,
        image_to_text=of_direction,
        pool=100,
        fitted_on=FittedOn(
            data="d.jsonl", split=None, photos=3, texts=3, searched="split", prior=0.5
        ),
        figures=CalibrationFigures(
            measured_on="out of fold",
            photos=3,
            auroc=measured.auroc,
            auroc_gain=measured.auroc_gain,
            text_to_image=figures,
            image_to_text=figures,
        ),
    )


def test_what_is_written_is_read(folder: Path, calibration: Calibration) -> None:
    model_id = calibration.model_id
    assert read_calibration(folder, model_id) is None
    write_calibration(folder, calibration)
    assert read_calibration(folder, model_id) == calibration
    newer = replace(calibration, pool=50)
    write_calibration(folder, newer)
    assert read_calibration(folder, model_id) == newer
    assert not list(folder.glob(".*"))


def test_one_that_was_stored_by_an_older_version_is_read(
    folder: Path, calibration: Calibration
) -> None:
    write_calibration(folder, calibration)
    data = json.loads((folder / CALIBRATION).read_text())
    for name in ("text_lengths", "photo_sample"):
        del data["fitted_on"][name]
    (folder / CALIBRATION).write_text(json.dumps(data))
    old = read_calibration(folder, calibration.model_id)
    assert old is not None
    assert (old.fitted_on.text_lengths, old.fitted_on.photo_sample) == (None, None)


def test_that_of_other_weights_is_refused(folder: Path, calibration: Calibration) -> None:
    write_calibration(folder, calibration)
    with pytest.raises(CheckpointError, match="expected a calibration of model other, found one"):
        read_calibration(folder, "other")
    with pytest.raises(CheckpointError, match=r"calibration\.json: expected a calibration of"):
        write_calibration(folder, replace(calibration, model_id="other"))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"model_id": "a", "stray": 1}', "\x00"])
def test_what_is_no_calibration_is_refused(folder: Path, content: str) -> None:
    (folder / CALIBRATION).write_text(content)
    with pytest.raises(CheckpointError, match=r"calibration\.json"):
        read_calibration(folder, "a")


def test_an_unknown_feature_is_refused(folder: Path, calibration: Calibration) -> None:
    write_calibration(folder, calibration)
    data = json.loads((folder / CALIBRATION).read_text())
    data["text_to_image"]["aligned"]["hit"]["terms"][0]["feature"] = "colour"
    (folder / CALIBRATION).write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="feature"):
        read_calibration(folder, calibration.model_id)
