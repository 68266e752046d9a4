"""Upgrades an index in a vector database to another model, while searches and changes continue.

The live generation is copied into an index of files below the folder that represents the index, and
upgraded there (`aladin_index.upgrade.run`); the result is pushed beside the live generation, which
answers alone until the new one goes live in one step. What is added or deleted meanwhile is carried
over before that. A database has no lock: a change that is under way at that moment may still reach
the old generation, so that it is looked through once more when all such calls have ended.

FOLDER/upgrade/
  begun.json     the generation, both models, and its items when the upgrade began
  index/         the copy, and what it is upgraded to
  switched.json  the items of both generations when the new one was about to go live
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import ConfigDict

from aladin_index.encode.region_sources import RegionSource
from aladin_index.engines.client import EngineClient
from aladin_index.engines.pull import Rows, pull_generation, rows_of
from aladin_index.engines.push import PushSettings, push_opened
from aladin_index.engines.push_files import PushSource, only_pusher
from aladin_index.engines.record import SOURCE, is_whole, read_generation, require_live
from aladin_index.format.disk import remove_folder
from aladin_index.format.layout import CURRENT, PHOTOS, UPGRADE, EngineLocation
from aladin_index.format.models import copy_upgrade_model, model_folder
from aladin_index.generations.reader import open_index
from aladin_index.generations.writer import describe_model
from aladin_index.upgrade.engine_changes import EngineChanges
from aladin_index.upgrade.run import (
    MissingSourcesError,
    UpgradeReport,
    UpgradeSettings,
    upgrade_index,
)
from aladin_network.calibration.fitted_files import copy_fitted, drop_fitted, read_fitted
from aladin_network.checkpoint_files import read_model_id
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import (
    ConfigError,
    IndexCorruptError,
    IndexMismatchError,
    InputError,
    UpgradeUnfinishedError,
)
from aladin_network.files import make_folder, write_json
from aladin_network.graphs.loading import load_for_inference
from aladin_network.inference import Network
from aladin_network.types import NullProgress, Progress, Target

T = TypeVar("T")

_BEGUN, _SWITCHED, _INDEX = "begun.json", "switched.json", "index"
# Passes over the live generation before the new one goes live; the last ones have little to do.
_PASSES = 5


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """An unfinished upgrade.

    Attributes:
        generation: Generation whose items are encoded again.
        old_model_id: SHA-256 of the weights of its model.
        new_model_id: SHA-256 of the weights of the new model.
        rows: Items of the generation when the upgrade began.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    generation: int
    old_model_id: str
    new_model_id: str
    rows: dict[Target, Rows]


@dataclass(frozen=True, kw_only=True)
class _Switched:
    """An upgrade whose generation is live or about to be.

    Attributes:
        generation: The new generation.
        known: Items of the old one that the new one takes into account.
        stored: Items of the new one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    generation: int
    known: dict[Target, Rows]
    stored: dict[Target, Rows]


def upgrade_engine_index(
    folder: Path,
    location: EngineLocation,
    client: EngineClient,
    checkpoint_folder: Path | None,
    settings: UpgradeSettings | None = None,
    progress: Progress | None = None,
    regions: RegionSource | None = None,
    settle_s: float = 10.0,
) -> UpgradeReport:
    """Encode all items by another model, and make a generation of it live.

    Args:
        folder: Folder that represents the index.
        location: Location of the index in the vector database.
        client: Client of that vector database; not closed.
        checkpoint_folder: Checkpoint of the new model; None for that of the upgrade to be resumed.
        settings: Options.
        progress: Receives the progress in items.
        regions: Regions of photos, for a new model that reads regions.
        settle_s: Seconds in which a change that was under way when the new generation went live
            has ended.

    Raises:
        UpgradeUnfinishedError: If an upgrade is unfinished and is not to be resumed.
        InputError: If there is no model and no upgrade to resume, the index is of this model
            already, the model is of another kind, or another generation went live meanwhile.
        MissingSourcesError: If items cannot be encoded again, unless they may be skipped.
        IndexMismatchError: If the upgrade to be resumed is one to another model, or a generation
            has the weights of the new model and another of its files.
        CheckpointError: If a checkpoint cannot be loaded.
        EngineUnavailableError: If the vector database does not respond.
        IndexWriteError: If the disk is full or cannot be written.
    """
    settings, progress = settings or UpgradeSettings(), progress or NullProgress()
    model_id = None if checkpoint_folder is None else read_model_id(checkpoint_folder)
    live = require_live(client, folder)
    with only_pusher(folder):
        begun = _read(folder, _BEGUN, _Begun)
        if begun is None:
            of_live = read_generation(client, live).manifest.model.id
            if model_id is not None and model_id == of_live:
                if settings.resume:  # it was killed when all was done
                    return _report(client, live)
                raise InputError(f"{folder}: expected another model than the index's own")
            begun = _begin(folder, client, live, checkpoint_folder)
        elif not settings.resume:
            raise UpgradeUnfinishedError(folder)
        elif model_id not in (None, begun.new_model_id):
            what = f"{folder}: model of the upgrade to be resumed"
            raise IndexMismatchError(what, begun.new_model_id, str(model_id))
        upgrade = _EngineUpgrade(folder, client, begun, settings, progress, regions)
        switched = _read(folder, _SWITCHED, _Switched)
        report: UpgradeReport | None = None
        if switched is None or live != switched.generation:
            if live != begun.generation:
                raise InputError(
                    f"{folder}: expected generation {begun.generation}, whose items are encoded "
                    f"again, got generation {live}; give the upgrade up with --discard"
                )
            report = upgrade.encode()
            switched = upgrade.switch(location)
            time.sleep(settle_s)
        upgrade.settle(switched)
        remove_folder(folder, folder / UPGRADE)
    done = report or _report(client, switched.generation)
    counts = _report(client, switched.generation).counts
    changes = upgrade.changes
    return done._replace(
        generation=switched.generation,
        counts=counts,
        skipped=[*done.skipped, *changes.skipped],
        carried=changes.carried,
    )


def discard_engine_upgrade(folder: Path, client: EngineClient) -> bool:
    """Give up an unfinished upgrade; return whether there was one.

    Raises:
        EngineUnavailableError: If the vector database does not respond.
        IndexWriteError: If the disk cannot be written, or the upgrade is running.
    """
    live = require_live(client, folder)
    with only_pusher(folder):
        if not (folder / UPGRADE).exists():
            return False
        for generation in client.generations():
            if generation > live and not is_whole(client.read_record(generation)):
                client.drop_generation(generation)
        remove_folder(folder, folder / UPGRADE)
    return True


def _begin(folder: Path, client: EngineClient, live: int, checkpoint_folder: Path | None) -> _Begun:
    """Copy the new model into the folder, and write down the items of the live generation."""
    if checkpoint_folder is None:
        raise InputError(f"{folder}: expected --model, as there is no upgrade to resume")
    manifest = read_generation(client, live).manifest
    model = describe_model(checkpoint_folder, read_model_id(checkpoint_folder))
    whole = (each for each in client.generations() if is_whole(client.read_record(each)))
    manifests = (read_generation(client, each).manifest for each in whole)
    copy = copy_upgrade_model(checkpoint_folder, folder, model, manifests)
    if read_fitted(checkpoint_folder, model.id).correction is None:
        copy_fitted(checkpoint_folder, copy, model.id)
    else:  # an engine has no biases, and the calibration is one of corrected scores
        drop_fitted(copy)
    begun = _Begun(
        generation=live,
        old_model_id=manifest.model.id,
        new_model_id=model.id,
        rows={target: rows_of(client, live, target) for target in manifest.targets},
    )
    make_folder(folder / UPGRADE)
    write_json(folder / UPGRADE / _BEGUN, dump_config(begun))
    return begun


class _EngineUpgrade:
    """One process's share of an upgrade.

    Attributes:
        changes: Carries over what is changed meanwhile.
    """

    def __init__(
        self,
        folder: Path,
        client: EngineClient,
        begun: _Begun,
        settings: UpgradeSettings,
        progress: Progress,
        regions: RegionSource | None,
    ) -> None:
        self._folder = folder
        self._client = client
        self._begun = begun
        self._settings = settings
        self._progress = progress
        self._regions = regions
        self.changes = EngineChanges(
            folder, client, begun.generation, self._load, settings.encoding, regions
        )

    @property
    def _copy(self) -> Path:
        return self._folder / UPGRADE / _INDEX

    def _load(self) -> Network:
        folder = model_folder(self._folder, self._begun.new_model_id)
        settings = self._settings
        return load_for_inference(folder, settings.device).model

    def encode(self) -> UpgradeReport:
        """Copy the live generation into an index of files, and upgrade that."""
        begun, client = self._begun, self._client
        if not (self._copy / CURRENT).exists():
            record = read_generation(client, begun.generation)
            pull_generation(client, record, begun.rows, self._folder, self._copy, self._progress)
        photos = self._copy / PHOTOS
        if not photos.is_symlink():
            photos.symlink_to((self._folder / PHOTOS).absolute(), target_is_directory=True)
        return upgrade_index(
            self._copy,
            model_folder(self._folder, begun.new_model_id),
            replace(self._settings, resume=True),
            self._progress,
            self._regions,
        )

    def switch(self, location: EngineLocation) -> _Switched:
        """Push the upgraded copy, carry over what was changed meanwhile, and make it live."""
        settings = PushSettings(discard_changes=True)
        with open_index(self._copy) as opened:
            self._drop_complete(PushSource(opened).identity(location, settings.ann_recall))
            report = push_opened(
                opened, self._folder, location, self._client, settings, self._progress, self._carry
            )
        switched = _read(self._folder, _SWITCHED, _Switched)
        assert switched is not None and switched.generation == report.generation
        return switched

    def _drop_complete(self, identity: bytes) -> None:
        """Remove a generation of this upgrade that was complete when a process was killed.

        What was carried over is in it, so that a push cannot continue it.
        """
        for generation in self._client.generations():
            if generation > self._begun.generation:
                pieces = self._client.read_record(generation) or {}
                if is_whole(pieces) and pieces[SOURCE] == identity:
                    self._client.drop_generation(generation)

    def settle(self, switched: _Switched) -> None:
        """Carry over the changes that reached the old generation while the new one went live."""
        for target, known in switched.known.items():
            stored, now = switched.stored[target], known
            for _ in range(_PASSES):
                before = self.changes.carried
                now = self.changes.carry(switched.generation, target, now, stored)
                if self.changes.carried == before:
                    break

    def _carry(self, generation: int) -> None:
        """Bring the new generation up to date, and write down how far it is."""
        client, changes, known = self._client, self.changes, dict(self._begun.rows)
        for _ in range(_PASSES):
            before = changes.carried
            for target in known:
                known[target] = changes.carry(generation, target, known[target])
            if changes.carried == before:
                break
        if changes.skipped and not self._settings.skip_missing:
            raise MissingSourcesError(self._folder, changes.skipped)
        # It is not what was pushed from another index of files: a push says so.
        record = read_generation(client, generation).with_changes()
        client.write_record(generation, record.pieces())
        stored: dict[Target, Rows] = {
            target: rows_of(client, generation, target) for target in known
        }
        switched = _Switched(generation=generation, known=known, stored=stored)
        write_json(self._folder / UPGRADE / _SWITCHED, dump_config(switched))


def _report(client: EngineClient, generation: int) -> UpgradeReport:
    """Describe a generation that is live."""
    targets = read_generation(client, generation).manifest.targets
    counts: dict[Target, int] = {target: client.count(generation, target) for target in targets}
    return UpgradeReport(generation, counts, [], 0, [], {}, {})


def _read(folder: Path, name: str, kind: type[T]) -> T | None:
    path = folder / UPGRADE / name
    try:
        return parse_config(kind, json.loads(path.read_bytes()), name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ConfigError) as error:
        raise IndexCorruptError(path, f"cannot be read ({error})") from error
