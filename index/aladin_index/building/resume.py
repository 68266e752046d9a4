"""The plan of a build; an interrupted build is only resumed if its plan is the same."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict

from aladin_index.format.layout import (
    BUILD,
    CURRENT,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import ModelEntry, read_manifest
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import Calibration
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import ConfigError, IndexMismatchError, InputError
from aladin_network.files import write_json
from aladin_network.scoring.hub_correction import HubCorrection
from aladin_network.types import Target

_PLAN = "plan.json"
# Settings that affect how a build runs, but not its result; `part` is covered by the built rows.
_WITHOUT_EFFECT = (
    "resume",
    "readers",
    "shards",
    "shard_items",
    "part",
    "metadata",
    "strict",
    "replace",
)


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """A build's ``.build/plan.json``.

    Attributes:
        shard_items: Number of items per shard; a resumed build continues with the shards that it
            finds.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    fingerprint: str
    generation: int
    shard_items: dict[Target, int]

    def shards(self, target: Target, rows: range) -> list[range]:
        """Split the rows of a collection into shards."""
        size = self.shard_items[target]
        return [
            range(start, min(start + size, rows.stop))
            for start in range(rows.start, rows.stop, size)
        ]


def can_resume(root: Path) -> bool:
    """Tell whether there is an interrupted build that can be resumed."""
    return (root / BUILD / _PLAN).exists()


def is_published(root: Path, fingerprint: str) -> bool:
    """Tell whether exactly this build is live and completely finished."""
    if (root / BUILD).exists() or not (root / CURRENT).exists():
        return False
    live = generation_folder(root, live_generation(root))
    return read_manifest(live).fingerprint == fingerprint


def is_placed(root: Path, plan: BuildPlan) -> bool:
    """Tell whether this build has published its generation, and only its work folder remains."""
    place = generation_folder(root, plan.generation)
    # Another generation may have taken the number since the build was interrupted.
    return place.exists() and read_manifest(place).fingerprint == plan.fingerprint


def begin(
    root: Path, fingerprint: str, shard_items: Mapping[Target, int], *, resume: bool
) -> BuildPlan:
    """Resume the interrupted build, or begin a new one."""
    work = root / BUILD
    if resume and (work / _PLAN).exists():
        plan = _read_plan(work / _PLAN)
        if plan.fingerprint != fingerprint:
            raise IndexMismatchError(
                "cannot resume: the items, the model or the settings differ from those of the "
                "interrupted build (build without resuming to start over): fingerprint",
                plan.fingerprint[:12],
                fingerprint[:12],
            )
        return plan
    discard(root)
    work.mkdir(parents=True)
    generation = max(published_generations(root), default=0) + 1
    plan = BuildPlan(fingerprint=fingerprint, generation=generation, shard_items=dict(shard_items))
    write_json(work / _PLAN, dump_config(plan))
    return plan


def discard(root: Path) -> None:
    """Delete the work of a build.

    Renamed first: a kill while files are being deleted must not leave a plan whose shards are
    no longer whole.
    """
    discarded = root / f"{BUILD}.discarded"
    shutil.rmtree(discarded, ignore_errors=True)
    if (root / BUILD).exists():
        (root / BUILD).rename(discarded)
        shutil.rmtree(discarded)


def fingerprint_of(
    model: ModelEntry,
    collections: Mapping[Target, str],
    settings: BuildSettings,
    calibration: Calibration | None = None,
    correction: HubCorrection | None = None,
) -> str:
    """Hash everything that determines the result of a build.

    A correction is identified by its constants.
    """
    effective = {
        key: value for key, value in dump_config(settings).items() if key not in _WITHOUT_EFFECT
    }
    known = [
        None if each is None else dump_config(each)
        for each in (calibration, None if correction is None else correction.constants)
    ]
    text = json.dumps([dump_config(model), dict(collections), effective, *known], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def rows_of_part(count: int, settings: BuildSettings, target: Target) -> range:
    """Return the rows of a source that the build of one part includes.

    Parts are made of whole batches, so that an item meets the same others in the network as in a
    build of the whole source, and has the same encoding to the last bit.
    """
    number, parts = settings.part
    batches = math.ceil(count / settings.batch_size)
    start, stop = (batches * each // parts * settings.batch_size for each in (number - 1, number))
    rows = range(start, min(stop, count))
    if not rows:
        raise InputError(
            f"{target}: part {number} of {parts} is empty: {count} items make {batches} "
            f"batches of {settings.batch_size}"
        )
    return rows


def items_a_shard(rows: range, settings: BuildSettings) -> int:
    """Return the number of items in a shard: whole batches, so that shards change no encoding."""
    wanted = settings.shard_items
    if settings.shards is not None:
        wanted = math.ceil(len(rows) / settings.shards)
    return math.ceil(wanted / settings.batch_size) * settings.batch_size


def _read_plan(path: Path) -> BuildPlan:
    try:
        return parse_config(BuildPlan, json.loads(path.read_text(encoding="utf-8")), str(path))
    except (ValueError, ConfigError) as error:
        raise IndexMismatchError(f"{path}: plan", "a plan of this version", error) from error
