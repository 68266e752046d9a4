"""Records kept with an index: items that a build skipped, and results of `aladin evaluate`.

Each collection of a generation has its list of skipped items. Evaluations are stored in one file
per generation:

INDEX/evaluations/000003.json   removed with the generation

An evaluation belongs to the generation that was measured: another one has other items, candidates
or an ANN that finds more. The newest evaluation of each data set and split is kept per generation.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import ConfigDict

from aladin_index.format.disk import changes_lock
from aladin_index.format.layout import (
    EVALUATIONS,
    SKIPPED,
    generation_folder,
    published_generations,
)
from aladin_index.format.manifest import read_manifest
from aladin_index.format.versioned import parse_versioned
from aladin_network.config import STRICT, dump_config
from aladin_network.errors import (
    AladinError,
    ConfigError,
    IndexCorruptError,
    IndexMismatchError,
    IndexWriteError,
    InputError,
)
from aladin_network.files import write_json

SCHEMA_VERSION = 1
# Maximum number per generation: data sets are few, and the file is always read whole.
_MOST = 16
_YEAR_10000_S = 253_402_300_800


class SkippedItem(NamedTuple):
    """An item that cannot be used.

    Attributes:
        id: ID assigned by the user.
        reason: Reason in words.
    """

    id: str
    reason: str

    def refused(self) -> InputError:
        """Return the error where the first item that cannot be used ends a job."""
        return InputError(f"{self.id}: {self.reason}")


def read_skipped(folder: Path) -> list[SkippedItem]:
    """Read the skipped items of one collection, in the order of the input.

    Args:
        folder: Folder of the collection, in the folder of its generation.

    Raises:
        IndexCorruptError: If the list cannot be read.
    """
    path = folder / SKIPPED
    try:
        lines = json.loads(path.read_text(encoding="utf-8"))
        return [SkippedItem(str(item_id), str(reason)) for item_id, reason in lines]
    except OSError as error:
        raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise IndexCorruptError(path, "not a list of ids and reasons") from error


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation of one generation.

    Attributes:
        generation: Generation that was measured.
        model_id: SHA-256 of the weights of the model that encoded the queries and the items.
        data: Human-readable name of the data set.
        split: Split of the data set, or None for all of it.
        images: Number of photos that were evaluated.
        texts: Number of captions that were evaluated.
        measured_at_s: Time of the measurement, in seconds since 1970.
        figures: Figures as `aladin evaluate --json` prints them.
        curve: Quality against the number of candidates, as ``--curve FILE.json`` writes it, or None
            if not measured.
    """

    generation: int
    model_id: str
    data: str
    split: str | None
    images: int
    texts: int
    measured_at_s: float
    figures: dict[str, Any]
    curve: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check the time of the measurement.

        Raises:
            ConfigError: If the time is before 1970, after the year 9999, or not a number.
        """
        if not 0 <= self.measured_at_s < _YEAR_10000_S:
            raise ConfigError(
                "measured_at_s: expected seconds since 1970, up to the year 9999, got "
                f"{self.measured_at_s}"
            )


@dataclass(frozen=True, kw_only=True)
class _File:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    evaluations: list[Evaluation]


def evaluations_file(root: Path, generation: int) -> Path:
    """Return the file of a generation's evaluations, which may be missing."""
    return root / EVALUATIONS / f"{generation:06d}.json"


def store_evaluation(root: Path, evaluation: Evaluation) -> None:
    """Store an evaluation, replacing one of the same generation, data set and split.

    Writers take turns; a reader finds the old file or the new one.

    Args:
        root: Index folder.
        evaluation: Evaluation of one of its generations, live or not.

    Raises:
        IndexMismatchError: If another model made the generation.
        IndexWriteError: If the index cannot be written or the generation no longer exists.
    """
    try:
        # Also prevents the removal of the generation meanwhile, see `drop_evaluations`.
        with changes_lock(root):
            if evaluation.generation not in published_generations(root):
                raise IndexWriteError(root, f"generation {evaluation.generation} no longer exists")
            model_id = read_manifest(generation_folder(root, evaluation.generation)).model.id
            if model_id != evaluation.model_id:
                raise IndexMismatchError(f"{root}: model", model_id, evaluation.model_id)
            others = [
                other
                for other in _known(root, evaluation.generation)
                if (other.data, other.split) != (evaluation.data, evaluation.split)
            ]
            kept = [evaluation, *others][:_MOST]
            file = _File(schema_version=SCHEMA_VERSION, evaluations=kept)
            write_json(evaluations_file(root, evaluation.generation), dump_config(file))
    except OSError as error:
        reason = f"the evaluation cannot be kept ({error.strerror or error})"
        raise IndexWriteError(error.filename or root, reason) from error


def read_evaluations(root: Path, generation: int) -> list[Evaluation]:
    """Return the evaluations of a generation, the newest first; empty if there are none.

    Args:
        root: Index folder.
        generation: Number of a generation on disk.

    Raises:
        IndexMismatchError: If the file has another schema version.
        IndexCorruptError: If the file cannot be read.
    """
    path = evaluations_file(root, generation)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
    file = parse_versioned(_File, content, path, SCHEMA_VERSION, "no evaluations")
    return sorted(file.evaluations, key=lambda each: -each.measured_at_s)


def drop_evaluations(root: Path) -> None:
    """Remove evaluations of removed generations; called by the only builder.

    Args:
        root: Index folder.

    Raises:
        OSError: If the disk cannot be written.
    """
    if not (root / EVALUATIONS).is_dir():
        return
    with changes_lock(root):
        left = {
            evaluations_file(root, generation).name for generation in published_generations(root)
        }
        for path in (root / EVALUATIONS).iterdir():
            # Also removed: partial files of a writer that was killed.
            if path.name.endswith(".partial") or (
                re.fullmatch(r"\d{6,}\.json", path.name) and path.name not in left
            ):
                path.unlink()


def _known(root: Path, generation: int) -> list[Evaluation]:
    """Return the stored evaluations to keep; an unreadable file is replaced."""
    try:
        return read_evaluations(root, generation)
    except AladinError:
        return []
