"""Calibration of both search directions, and its file beside a checkpoint's weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict

from aladin_network.calibration.figures import (
    CalibratedDirection,
    CalibratedOn,
    CalibrationFacts,
)
from aladin_network.calibration.judging import (
    CandidateScores,
    Judgement,
    LogisticModel,
    hit_design,
    probability,
    query_design,
)
from aladin_network.checkpoint_files import read_description, read_model_id
from aladin_network.config import STRICT, dump_config
from aladin_network.errors import CheckpointError
from aladin_network.files import write_json
from aladin_network.types import Direction

# Why an answer has no probabilities: most photos of the index are of other data than the
# calibration was fitted on; or the models need the scores of both stages.
Unreliable = Literal["other_photos", "no_alignment"]

SCHEMA_VERSION = 1
# Not a part of the checkpoint itself: an index copies its content, not the file.
CALIBRATION = "calibration.json"

# Number of hashes kept of a data set. Of an index of a few photos of a large data set, enough are
# among them to recognise it: of 1,000 photos of 100,000, ten.
SAMPLE_SIZE = 1024
_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class DataSample:
    """The photos of a data set with the smallest hashes, by which its photos are recognised.

    Hashes are kept in place of ids, which may be file names, because a calibration travels with
    its checkpoint.

    Attributes:
        photos: Number of photos of the data set, in all splits.
        hashes: Hashed ids, ascending.
    """

    photos: int
    hashes: list[str]

    @classmethod
    def of(cls, photo_ids: Iterable[str]) -> DataSample:
        """Sample a data set by the unique ids of all its photos."""
        hashes = sorted(map(hash_photo, photo_ids))
        return cls(photos=len(hashes), hashes=hashes[:SAMPLE_SIZE])

    @property
    def limit(self) -> str:
        """Largest hash of which it is known whether the data set has it."""
        return self.hashes[-1] if self.photos > len(self.hashes) else "g"  # above all digits


def hash_photo(photo_id: str) -> str:
    """Return the first 64 bits of an id's sha256, as hexadecimal digits."""
    return hashlib.sha256(photo_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


@dataclass(frozen=True, kw_only=True)
class FittedOn(CalibratedOn):
    """What a calibration was fitted on.

    Attributes:
        data_sample: Photos of the whole data set.
        correction: Hubness correction of the scores, see
            `aladin_network.calibration.fitted_files.correction_id`.
    """

    data_sample: DataSample = field(repr=False)  # hashes tell people nothing
    correction: str


@dataclass(frozen=True, kw_only=True)
class DirectionCalibration(CalibratedDirection):
    """The probabilities of one direction."""

    hit: LogisticModel
    match: LogisticModel
    no_match_below: float

    def judge(self, pool: CandidateScores, hits: CandidateScores) -> Judgement:
        """Estimate how likely an answer is right."""
        if not self.aligned:
            pool, hits = pool._replace(align=None), hits._replace(align=None)
        # All at once: a search has a tenth of a millisecond for this.
        log_odds = self.hit.log_odds(hit_design(pool, pool.joined(hits)))
        size = len(pool.rows)
        of_match = self.match.log_odds(query_design(pool, log_odds[:size]))
        return Judgement(bool(of_match[0] < self.no_match_below), probability(log_odds[size:]))


@dataclass(frozen=True, kw_only=True)
class Calibration(CalibrationFacts):
    """The probabilities of both directions; it judges nothing for an index of `other_photos`.

    Attributes:
        model_id: SHA-256 of the weights whose scores the calibration is fitted to.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: Literal[1] = 1
    model_id: str
    text_to_image: DirectionCalibration
    image_to_text: DirectionCalibration
    fitted_on: FittedOn

    def of(self, direction: Direction) -> DirectionCalibration:
        return self.text_to_image if direction == "text_to_image" else self.image_to_text

    def unreliable_because(self, direction: Direction, *, aligned: bool) -> Unreliable | None:
        """Return why the calibration may not judge an answer, or None if it may.

        Args:
            direction: Direction of the query.
            aligned: Whether there are the scores of both stages.
        """
        if self.other_photos:
            return "other_photos"
        return None if aligned or not self.of(direction).aligned else "no_alignment"


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Write a calibration into its checkpoint atomically; an older one is replaced.

    Args:
        folder: Checkpoint folder.
        calibration: Calibration fitted to the scores of the weights in the folder.

    Raises:
        CheckpointError: If it was fitted to other weights, or the folder cannot be written.
    """
    _check_model(folder / CALIBRATION, calibration, read_model_id(folder))
    try:
        write_json(folder / CALIBRATION, dump_config(calibration))
    except OSError as error:
        reason = f"cannot be written ({error.strerror})"
        raise CheckpointError(f"{folder / CALIBRATION}: {reason}") from error


def read_calibration(folder: Path, model_id: str) -> Calibration | None:
    """Read the calibration of a checkpoint.

    Args:
        folder: Checkpoint folder.
        model_id: Id of the checkpoint's weights.

    Returns:
        None where the checkpoint is not calibrated.

    Raises:
        CheckpointError: If the file is not a calibration, or belongs to other weights.
    """
    path = folder / CALIBRATION
    try:
        calibration = read_description(path, Calibration, SCHEMA_VERSION)
    except FileNotFoundError:
        return None
    _check_model(path, calibration, model_id)
    return calibration


def _check_model(path: Path, calibration: Calibration, model_id: str) -> None:
    if calibration.model_id != model_id:
        raise CheckpointError(
            f"{path}: expected a calibration of model {model_id}, found one of "
            f"{calibration.model_id}; fit it anew: aladin calibrate"
        )
