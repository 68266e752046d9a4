"""What `aladin evaluate` measured of an index, kept with it: one file a generation.

INDEX/evaluations/000003.json   gone when the generation is

An evaluation belongs to the generation that was measured: another one has other items, candidates
or an ANN that finds more. Of each data set and split the newest evaluation of a generation stays.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from aladin_index.format.layout import EVALUATIONS, generation_folder, published_generations
from aladin_index.format.locks import changes_lock
from aladin_index.format.manifest import read_manifest
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import (
    AladinError,
    ConfigError,
    IndexCorruptError,
    IndexMismatchError,
    IndexWriteError,
)
from aladin_network.files import write_json

SCHEMA_VERSION = 1
# Of one generation: data sets are few, and a file that only ever grew would be read whole.
_MOST = 16
_YEAR_10000_S = 253_402_300_800


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation of one generation.

    Attributes:
        generation: that was measured.
        model_id: sha256 of the weights that encoded the queries and the items.
        data: names the data set, for people.
        split: of the data set; None: all of it.
        images: number of photos that were evaluated.
        texts: number of captions that were evaluated.
        measured_at_s: when it was done, in seconds since 1970.
        figures: as `aladin evaluate --json` prints them.
        curve: quality against the number of candidates, as ``--curve FILE.json`` writes it; None:
            not measured.
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
        """Refuse a moment that no calendar has.

        Raises:
            ConfigError: it is before 1970, after the year 9999, or no number.
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
    """Return where what was measured of a generation is, if anything was."""
    return root / EVALUATIONS / f"{generation:06d}.json"


def store_evaluation(root: Path, evaluation: Evaluation) -> None:
    """Keep an evaluation in the place of an earlier one of the same generation, data and split.

    Writers take turns; a reader finds the old file or the new one.

    Args:
        root: of the index.
        evaluation: of one of its generations, be it live or not.

    Raises:
        IndexMismatchError: another model made the generation.
        IndexWriteError: the index cannot be written, or the generation is gone.
    """
    try:
        # Also keeps what it belongs to from being swept away meanwhile, see `drop_evaluations`.
        with changes_lock(root):
            if evaluation.generation not in published_generations(root):
                raise IndexWriteError(root, f"generation {evaluation.generation} is gone")
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
    """Read what was measured of a generation, the newest first; empty: nothing.

    Args:
        root: of the index.
        generation: on the disk.

    Raises:
        IndexMismatchError: the file is of another schema version.
        IndexCorruptError: it cannot be read.
    """
    path = evaluations_file(root, generation)
    try:
        data: Any = json.loads(path.read_bytes())
        version = data["schema_version"]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise IndexCorruptError(path, "no evaluations") from error
    if version != SCHEMA_VERSION:
        raise IndexMismatchError(f"{path}: schema version", SCHEMA_VERSION, version)
    try:
        file = parse_config(_File, data, EVALUATIONS)
    except ConfigError as error:
        raise IndexCorruptError(path, str(error)) from error
    return sorted(file.evaluations, key=lambda each: -each.measured_at_s)


def drop_evaluations(root: Path) -> None:
    """Remove evaluations of generations that are gone; called by the only builder.

    Args:
        root: of the index.

    Raises:
        OSError: the disk cannot be written.
    """
    if not (root / EVALUATIONS).is_dir():
        return
    with changes_lock(root):
        left = {
            evaluations_file(root, generation).name for generation in published_generations(root)
        }
        for path in (root / EVALUATIONS).iterdir():
            # Of no use either: what a writer that was killed had begun.
            if path.name.endswith(".partial") or (
                re.fullmatch(r"\d{6,}\.json", path.name) and path.name not in left
            ):
                path.unlink()


def _known(root: Path, generation: int) -> list[Evaluation]:
    """Read what is there to be kept: a file that nobody can read gives way."""
    try:
        return read_evaluations(root, generation)
    except AladinError:
        return []
