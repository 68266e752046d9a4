"""What a build is about to do; a build that was cut short is only resumed on the same plan."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict

from aladin.atomic import write_json
from aladin.errors import ConfigError, IndexMismatchError
from aladin.strict_config import STRICT, dump_config, parse_config
from index.layout import BUILD, CURRENT, generation_folder, live_generation, published_generations
from index.manifest import ModelEntry, read_manifest
from index.settings import BuildSettings, Target
from index.source_items import ImageItem, SourceItem, item_json

_PLAN = "plan.json"
# Settings that change how a build runs, not what it makes.
_WITHOUT_EFFECT = ("resume", "readers")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A build's ``.build/plan.json``.

    Attributes:
        fingerprint: of inputs, model and settings.
        generation: number of the generation that the build publishes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    fingerprint: str
    generation: int


def is_published(root: Path, fingerprint: str) -> bool:
    """Whether this very build is live and nothing of it is left to do."""
    if (root / BUILD).exists() or not (root / CURRENT).exists():
        return False
    live = generation_folder(root, live_generation(root))
    return read_manifest(live).fingerprint == fingerprint


def begin(root: Path, fingerprint: str, *, resume: bool) -> Plan:
    """Take up the build that was cut short, or begin a new one.

    Args:
        root: of the index.
        fingerprint: of the build that is asked for.
        resume: without it, what is left of an earlier build is thrown away.

    Raises:
        IndexMismatchError: the build that was cut short is another one.
    """
    work = root / BUILD
    if resume and (work / _PLAN).exists():
        plan = _read_plan(work / _PLAN)
        if plan.fingerprint != fingerprint:
            raise IndexMismatchError(
                "cannot resume, for the items, the model or the settings are not those of the "
                "build that was cut short (build without resuming to start over): fingerprint",
                plan.fingerprint[:12],
                fingerprint[:12],
            )
        return plan
    discard(root)
    work.mkdir(parents=True)
    generation = max(published_generations(root), default=0) + 1
    plan = Plan(fingerprint=fingerprint, generation=generation)
    write_json(work / _PLAN, dump_config(plan))
    return plan


def discard(root: Path) -> None:
    """Throw the work of a build away.

    Renamed first: a kill while files are being deleted must not leave a plan whose shards are
    no longer whole.
    """
    discarded = root / f"{BUILD}.discarded"
    shutil.rmtree(discarded, ignore_errors=True)
    if (root / BUILD).exists():
        (root / BUILD).rename(discarded)
        shutil.rmtree(discarded)


def fingerprint_of(
    model: ModelEntry, items: dict[Target, Sequence[SourceItem]], settings: BuildSettings
) -> str:
    """Hash all that decides what a build makes, photos by their length and time of change.

    Args:
        model: the checkpoint.
        items: of each side that is built.
        settings: of the build.
    """
    digest = hashlib.sha256()
    effective = {
        key: value for key, value in dump_config(settings).items() if key not in _WITHOUT_EFFECT
    }
    digest.update(json.dumps([dump_config(model), effective], sort_keys=True).encode())
    for target, of_target in items.items():
        digest.update(f"\n{target} {len(of_target)}\n".encode())
        for item in of_target:
            digest.update(f"{item_json(item)} {_file_state(item)}\n".encode())
    return digest.hexdigest()


def _file_state(item: SourceItem) -> str:
    if not isinstance(item, ImageItem):
        return ""
    try:
        state = item.path.stat()
    except OSError:
        return "missing"
    return f"{state.st_size} {state.st_mtime_ns}"


def _read_plan(path: Path) -> Plan:
    try:
        return parse_config(Plan, json.loads(path.read_text(encoding="utf-8")), str(path))
    except (ValueError, ConfigError) as error:
        raise IndexMismatchError(f"{path}: plan", "a plan of this version", error) from error
