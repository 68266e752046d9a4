"""A calibration and the hubness correction that it was fitted with: together, or neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_network.calibration.calibration import CALIBRATION, Calibration, write_calibration
from aladin_network.calibration.fitted_files import (
    UNCORRECTED,
    copy_fitted,
    read_fitted,
    store_correction,
)
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import CheckpointError
from aladin_network.scoring.encoding import TokenRows
from aladin_network.scoring.hub_correction import (
    CORRECTION,
    CorrectionConstants,
    DirectionCorrection,
    EncodedItems,
    HubCorrection,
    NearestMean,
)


def make_correction(model_id: str, weight: float) -> HubCorrection:
    """A correction with banks of a single item."""
    row = np.ones((1, 4), dtype=np.float32) / 2
    bank = EncodedItems(row, TokenRows(row, np.ones(1, dtype=np.int64)))
    constants = CorrectionConstants(
        model_id=model_id,
        data="data.jsonl",
        selection="train",
        text_to_image=DirectionCorrection(match=NearestMean(weight=weight)),
    )
    return HubCorrection(constants=constants, images=bank, texts=bank)


def fitted_with(calibration: Calibration, correction: str) -> Calibration:
    return replace(calibration, fitted_on=replace(calibration.fitted_on, correction=correction))


def test_a_pair_is_read_and_copied(
    folder: Path, tmp_path: Path, make_calibration: Callable[..., Calibration]
) -> None:
    model_id = read_model_id(folder)
    correction = make_correction(model_id, 0.5)
    calibration = fitted_with(make_calibration(model_id), correction.constants.id)
    assert not store_correction(folder, correction)
    write_calibration(folder, calibration)
    out = tmp_path / "out"
    out.mkdir()
    make_correction(model_id, 0.1).save(out / CORRECTION)  # replaced
    copy_fitted(folder, out, model_id)
    found = read_fitted(out, model_id)
    assert found.calibration == calibration
    assert found.correction is not None
    assert found.correction.constants == correction.constants
    copy_fitted(folder, folder, model_id)
    assert read_fitted(folder, model_id).calibration == calibration
    # A checkpoint that has neither leaves neither.
    (folder / CALIBRATION).unlink()
    (folder / CORRECTION).unlink()
    copy_fitted(folder, out, model_id)
    assert read_fitted(out, model_id) == (None, None)
    assert not list(out.iterdir())


@pytest.mark.parametrize("recorded", ["other", "none", "own"])
@pytest.mark.parametrize("beside", ["other", "none", "own"])
def test_a_calibration_of_other_scores_is_refused(
    folder: Path, make_calibration: Callable[..., Calibration], recorded: str, beside: str
) -> None:
    model_id = read_model_id(folder)
    corrections = {"own": make_correction(model_id, 0.5), "other": make_correction(model_id, 0.4)}
    ids = {name: each.constants.id for name, each in corrections.items()} | {"none": UNCORRECTED}
    assert len(set(ids.values())) == 3
    if beside != "none":
        corrections[beside].save(folder / CORRECTION)
    write_calibration(folder, fitted_with(make_calibration(model_id), ids[recorded]))
    if recorded == beside:
        assert read_fitted(folder, model_id).calibration is not None
        return
    with pytest.raises(CheckpointError, match="aladin calibrate") as raised:
        read_fitted(folder, model_id)
    assert f"correction {ids[beside]!r}, found one of {ids[recorded]!r}" in str(raised.value)


def test_no_calibration_is_left_while_a_correction_is_stored(
    folder: Path, make_calibration: Callable[..., Calibration], monkeypatch: pytest.MonkeyPatch
) -> None:
    model_id = read_model_id(folder)
    write_calibration(folder, make_calibration(model_id))
    correction, save = make_correction(model_id, 0.5), HubCorrection.save

    def saved(each: HubCorrection, path: Path) -> None:
        save(each, path)
        assert not (folder / CALIBRATION).exists()

    monkeypatch.setattr(HubCorrection, "save", saved)
    assert store_correction(folder, correction)
    assert (folder / CORRECTION).exists()
