"""The calibration file of a checkpoint, its sample of photos, and when it may judge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aladin_network.calibration.calibration import (
    CALIBRATION,
    SAMPLE_SIZE,
    Calibration,
    DataSample,
    hash_photo,
    read_calibration,
    write_calibration,
)
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import CheckpointError


@pytest.fixture
def calibration(folder: Path, make_calibration: Callable[..., Calibration]) -> Calibration:
    return make_calibration(read_model_id(folder))


def test_a_written_calibration_is_read_and_replaced(folder: Path, calibration: Calibration) -> None:
    model_id = calibration.model_id
    assert read_calibration(folder, model_id) is None
    write_calibration(folder, calibration)
    assert json.loads((folder / CALIBRATION).read_text())["schema_version"] == 1
    assert read_calibration(folder, model_id) == calibration
    newer = replace(calibration, measured_on="test")
    write_calibration(folder, newer)
    assert read_calibration(folder, model_id) == newer
    assert not list(folder.glob(".*"))


def test_a_calibration_of_other_weights_is_refused(folder: Path, calibration: Calibration) -> None:
    write_calibration(folder, calibration)
    with pytest.raises(CheckpointError, match="expected a calibration of model other, found one"):
        read_calibration(folder, "other")
    with pytest.raises(CheckpointError, match=r"calibration\.json: expected a calibration of"):
        write_calibration(folder, replace(calibration, model_id="other"))


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", "\x00"),
        *({"stray": 1}, {"schema_version": 2}, {"text_to_image": {"hit": {"terms": []}}}),
    ],
    ids=str,
)
def test_a_file_of_another_format_is_refused(
    folder: Path, calibration: Calibration, content: str | dict[str, object]
) -> None:
    write_calibration(folder, calibration)
    if isinstance(content, dict):
        content = json.dumps(json.loads((folder / CALIBRATION).read_text()) | content)
    (folder / CALIBRATION).write_text(content)
    with pytest.raises(CheckpointError, match=r"calibration\.json"):
        read_calibration(folder, calibration.model_id)


def test_a_sample_has_the_smallest_hashes_whatever_the_order() -> None:
    ids = [f"photo {number}.jpg" for number in range(3000)]
    sample = DataSample.of(ids)
    assert sample == DataSample.of(reversed(ids))
    assert (sample.photos, len(sample.hashes)) == (3000, SAMPLE_SIZE)
    assert sample.hashes == sorted(map(hash_photo, ids))[:SAMPLE_SIZE]
    assert sample.limit == sample.hashes[-1]
    assert DataSample.of(["a", "b"]).limit > "f" * 16  # of a small data set all hashes are known
    assert hash_photo("a") == hashlib.sha256(b"a").hexdigest()[:16]
    assert hash_photo("\udcff") != hash_photo("a")  # a name that is no Unicode


def test_a_calibration_judges_unless_it_is_of_other_photos_or_lacks_a_stage(
    calibration: Calibration,
) -> None:
    first_stage = replace(
        calibration, image_to_text=replace(calibration.image_to_text, aligned=False)
    )
    for direction in ("text_to_image", "image_to_text"):
        assert calibration.unreliable_because(direction, aligned=True) is None
        assert calibration.unreliable_because(direction, aligned=False) == "no_alignment"
        others = replace(calibration, other_photos=True)
        assert others.unreliable_because(direction, aligned=True) == "other_photos"
    assert first_stage.unreliable_because("image_to_text", aligned=False) is None
    assert first_stage.unreliable_because("text_to_image", aligned=False) == "no_alignment"
