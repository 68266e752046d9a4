"""The plan of an unfinished upgrade: which generation is encoded again, by which model.

upgrade/
  plan.json         the plan; the folder appears with it
  bridge/           see `aladin_index.format.upgrade_methods`
  images/sample.npy the rows of a random sample, which is encoded first
  images/000001/    a part: items that are encoded by the new model, see `aladin_index.build.shards`
  images/skipped.json  items that could not be encoded again
  texts/            the same for texts

A plan counts as long as the generation that it names is live. When another one is, the upgrade is
finished or was rolled back, and what is left of its folder is removed by the next builder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from aladin_index.format.layout import UPGRADE, live_generation
from aladin_index.format.manifest import ModelEntry
from aladin_index.format.upgrade_methods import RestMethod, read_rest_methods
from aladin_index.format.versioned import parse_versioned
from aladin_network.config import STRICT, dump_config
from aladin_network.errors import IndexCorruptError, SearchIndexError
from aladin_network.files import atomic_file, write_json
from aladin_network.types import TARGETS, Target

SCHEMA_VERSION = 1
PLAN, SAMPLE, SKIPPED_ROWS, ROWS = "plan.json", "sample.npy", "skipped.json", "rows.npy"


@dataclass(frozen=True, kw_only=True)
class UpgradePlan:
    """An upgrade's ``plan.json``.

    Attributes:
        schema_version: Schema version of this file.
        run: Random name of this upgrade.
        generation: Generation whose items are encoded again.
        old_model_id: SHA-256 of the weights of the model of that generation.
        model: The new model.
        started_at_s: Start of the upgrade, in seconds since 1970.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int = SCHEMA_VERSION
    run: str
    generation: int
    old_model_id: str
    model: ModelEntry
    started_at_s: float


def write_plan(folder: Path, plan: UpgradePlan) -> None:
    """Write a plan into the folder of an upgrade."""
    write_json(folder / PLAN, dump_config(plan))


def read_plan(root: Path) -> UpgradePlan | None:
    """Return the plan in an index folder, or None if there is none, whether or not it counts.

    Raises:
        IndexMismatchError: If the plan has another schema version.
        IndexCorruptError: If it cannot be read.
    """
    path = root / UPGRADE / PLAN
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
    return parse_versioned(UpgradePlan, content, path, SCHEMA_VERSION, "not the plan of an upgrade")


def upgrade_is_unfinished(root: Path) -> bool:
    """Whether there is an upgrade of the generation that is live, or one that cannot be read."""
    try:
        plan = read_plan(root)
    except SearchIndexError:
        return True
    return plan is not None and live_generation(root) == plan.generation


def plan_identity(root: Path) -> tuple[int, int] | None:
    """Return an identifier of the plan in an index folder, or None if there is none."""
    try:
        state = (root / UPGRADE / PLAN).stat()
    except OSError:
        return None
    return state.st_ino, state.st_ctime_ns


def parts_folder(root: Path, target: Target) -> Path:
    """Return the folder of the parts of one collection, which may not exist."""
    return root / UPGRADE / target


def part_folders(root: Path, target: Target) -> list[Path]:
    """Return the folders of the finished parts of one collection, in their order."""
    return sorted(parts_folder(root, target).glob("[0-9]*"))


def write_sample(root: Path, target: Target, rows: NDArray[np.int64]) -> None:
    """Write which rows of a collection are its random sample."""
    with atomic_file(parts_folder(root, target) / SAMPLE) as partial, partial.open("wb") as file:
        np.save(file, rows)


def read_sample(root: Path, target: Target) -> NDArray[np.int64] | None:
    """Read the rows of a collection's random sample, or return None if none was drawn.

    Raises:
        IndexCorruptError: If the file cannot be read.
    """
    path = parts_folder(root, target) / SAMPLE
    try:
        return np.load(path, allow_pickle=False).astype(np.int64)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError) as error:
        raise IndexCorruptError(path, f"not a readable array ({error})") from error


class SkippedRow(NamedTuple):
    """An item that could not be encoded by the new model.

    Attributes:
        row: Row of the item in the live generation or its changes.
        id: ID assigned by the user.
        reason: Reason in words.
    """

    row: int
    id: str
    reason: str


def read_skipped_rows(root: Path, target: Target) -> list[SkippedRow]:
    """Read which items of a collection could not be encoded, in no particular order.

    Raises:
        IndexCorruptError: If the list cannot be read.
    """
    path = parts_folder(root, target) / SKIPPED_ROWS
    try:
        lines = json.loads(path.read_text(encoding="utf-8"))
        return [SkippedRow(int(row), str(item_id), str(reason)) for row, item_id, reason in lines]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise IndexCorruptError(path, f"cannot be read ({error})") from error


class UpgradeProgress(NamedTuple):
    """How far an unfinished upgrade is.

    Attributes:
        plan: The plan.
        encoded: Number of items that the new model has encoded, by collection; some of them may
            have been deleted since.
        skipped: Number of items that it could not encode, by collection.
        methods: How the others are asked, by collection; None until this is measured.
    """

    plan: UpgradePlan
    encoded: dict[Target, int]
    skipped: dict[Target, int]
    methods: dict[Target, RestMethod] | None


def upgrade_progress(root: Path, live: int) -> UpgradeProgress | None:
    """Return the progress of an unfinished upgrade of an index of files, or None without one.

    Args:
        root: Index folder.
        live: Number of the live generation.

    Raises:
        IndexMismatchError: If the plan has another schema version.
        IndexCorruptError: If a file of the upgrade cannot be read.
    """
    plan = read_plan(root)
    if plan is None or plan.generation != live:
        return None
    encoded: dict[Target, int] = {}
    for target in TARGETS:
        encoded[target] = sum(_row_count(part) for part in part_folders(root, target))
    skipped: dict[Target, int] = {
        target: len(read_skipped_rows(root, target)) for target in TARGETS
    }
    return UpgradeProgress(plan, encoded, skipped, read_rest_methods(root))


def _row_count(part: Path) -> int:
    try:
        return len(np.load(part / ROWS, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise IndexCorruptError(part / ROWS, f"not a readable array ({error})") from error
