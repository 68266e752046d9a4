"""Gives an index of files another model, while searches and changes of the live one continue.

    upgrade_index(root, checkpoint_folder)

The live items are encoded again from their sources, shard by shard beside the live generation,
which answers alone all the time. When all are encoded, a generation of the new model is written and
made live in one step, with what was added, deleted or changed meanwhile. A process that is killed
at any moment loses a shard at most; the same call goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from aladin_index.building.builder import BuildReport
from aladin_index.building.shards import LocalEncoding, ShardFormat, codec_of
from aladin_index.changes.writable import WritableGeneration
from aladin_index.encode.region_sources import check_regions
from aladin_index.format.disk import changes_lock, disk_errors, only_builder, remove_folder
from aladin_index.format.layout import (
    UPGRADE,
    check_kept_in_files,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import (
    DIGEST,
    Manifest,
    ModelEntry,
    check_same_model,
    copy_upgrade_model,
    read_manifest,
)
from aladin_index.format.skipped import SkippedItem
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.compact import settings_of
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.writer import NewGeneration, describe_model, write_generation
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_index.upgrade.collection import UpgradedCollection, Waiting
from aladin_index.upgrade.encodings import Encodings
from aladin_network.calibration.fitted_files import FittedFiles, read_fitted
from aladin_network.config import dump_config
from aladin_network.detectors.base import Detector
from aladin_network.errors import InputError, SearchIndexError
from aladin_network.graphs.loading import load_for_inference
from aladin_network.types import NullProgress, Progress, Target

_EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class UpgradeReport(BuildReport):
    """Result of an upgrade; items that were skipped are no longer in the index.

    Attributes:
        carried: Number of additions and deletions that came while the generation was written.
        fit_anew: What was fitted to the old model and is missing now: "tune", "correct",
            "calibrate".
        was_done: Whether the live generation was of this model already.
    """

    carried: int = 0
    fit_anew: Sequence[str] = ()
    was_done: bool = False


class MissingSourcesError(InputError):
    """Items cannot be encoded again, and the index is not to go on without them.

    Attributes:
        skipped: These items, with the reason.
    """

    def __init__(self, root: Path, skipped: Sequence[SkippedItem], total: int) -> None:
        shown = "; ".join(f"{each.id!r}: {each.reason}" for each in skipped[:_EXAMPLES])
        more = "; ..." if len(skipped) > _EXAMPLES else ""
        super().__init__(
            f"{root}: {len(skipped)} of {total} items have no source that the new model could "
            f"encode ({shown}{more}); the old model goes on answering. Restore their photos and "
            "run the command again, or run it with --skip-missing to go on without them"
        )
        self.skipped = list(skipped)


def upgrade_index(
    root: Path,
    checkpoint_folder: Path,
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
    detector: Detector | None = None,
    *,
    skip_missing: bool = False,
) -> UpgradeReport:
    """Encode all items by another model, and make a generation of it live.

    Args:
        root: Index folder.
        checkpoint_folder: Checkpoint of the new model.
        settings: How items are encoded. The first stage, the form of tokens, the fields for filters
            and the number of candidates are those of the live generation.
        progress: Receives the progress in items, and the seconds of each stage.
        detector: Finds the regions of photos, for a new model that reads regions.
        skip_missing: Whether to go on without the items that cannot be encoded again.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        InputError: If the index is kept in a vector database, the model needs regions or has no use
            for them, or a collection has no item left.
        MissingSourcesError: If items cannot be encoded again, unless they may be skipped.
        IndexMismatchError: If a generation has the weights of the new model and another of its
            files.
        CheckpointError: If a checkpoint cannot be loaded.
        IndexWriteError: If the disk is full or cannot be written, or the index is being built.
    """
    # Metadata of the photos themselves are those that the index has.
    settings = replace(settings or BuildSettings(), exif=False)
    progress = progress or NullProgress()
    check_kept_in_files(root)
    live_generation(root)  # nothing is written where there is no index
    with disk_errors(root), only_builder(root), open_index(root, encodes=False) as index:
        checkpoint = load_for_inference(checkpoint_folder, settings.device)
        model = describe_model(checkpoint_folder, checkpoint.model_id)
        if model.id == index.manifest.model.id:
            check_same_model(str(root), index.manifest.model, model)
            _drop_work(root)
            counts: dict[Target, int] = {
                target: index.collection(target).count for target in index.manifest.targets
            }
            return UpgradeReport(generation=index.generation, counts=counts, was_done=True)
        if "images" in index.manifest.targets:
            check_regions(checkpoint.model, detector)
        fitted = read_fitted(checkpoint_folder, model.id)
        copy_upgrade_model(checkpoint_folder, root, model, _readable_manifests(root))
        form = ShardFormat.of(checkpoint.model)
        encoding = LocalEncoding(checkpoint.model, settings, detector)
        work = _work_folder(root, model, detector)
        collections: dict[Target, UpgradedCollection] = {
            target: UpgradedCollection(
                index, target, Encodings(work / target, form), encoding, settings, progress
            )
            for target in index.manifest.targets
        }
        upgrade = _Upgrade(index, model, fitted, collections, settings, progress, skip_missing)
        report = upgrade.run()
        _drop_work(root)
        return report


def _work_folder(root: Path, model: ModelEntry, detector: Detector | None) -> Path:
    """Return the folder of what a model has encoded by the regions of a detector."""
    said = json.dumps([dump_config(model), detector and detector.id], sort_keys=True)
    return root / UPGRADE / hashlib.sha256(said.encode()).hexdigest()[:16]


def _drop_work(root: Path) -> None:
    if (root / UPGRADE).exists():
        remove_folder(root, root / UPGRADE)


def _readable_manifests(root: Path) -> list[Manifest]:
    """Read the manifests of all generations but damaged ones, which need no model."""
    manifests: list[Manifest] = []
    for number in published_generations(root):
        with suppress(SearchIndexError):
            manifests.append(read_manifest(generation_folder(root, number)))
    return manifests


@dataclass
class _Upgrade:
    """One process's share of an upgrade, to its end."""

    index: SearchIndex
    model: ModelEntry
    fitted: FittedFiles
    collections: Mapping[Target, UpgradedCollection]
    settings: BuildSettings
    progress: Progress
    skip_missing: bool
    carried: int = 0
    skipped: dict[Target, list[SkippedItem]] = field(
        default_factory=dict[Target, list[SkippedItem]]
    )

    def run(self) -> UpgradeReport:
        """Encode what is not encoded yet, and make the new generation live."""
        collections = self.collections
        waiting: dict[Target, Waiting] = {
            target: each.look() for target, each in collections.items()
        }
        self._check_missing(waiting)
        self._check_some_left()
        for target, each in collections.items():
            each.encode(waiting[target])
            each.catch_up()
        self._check_missing()
        self._check_some_left()
        live = self.index.manifest
        sources: dict[Target, CollectionSource] = {
            target: each.source(self._codec(target), self.skipped[target])
            for target, each in collections.items()
        }
        calibration, correction = self.fitted
        new = NewGeneration(
            collections=sources,
            model=self.model,
            settings=replace(settings_of(live), device=self.settings.device),
            fingerprint=self._fingerprint(),
            made_by="upgrade",
            calibration=calibration,
            correction=correction,
            going_live=self._carry,
        )
        generation = write_generation(self.index.path, new, self.progress)
        every = [each for of_target in self.skipped.values() for each in of_target]
        counts: dict[Target, int] = {
            target: int(np.count_nonzero(each.place[each.rows] >= 0))
            for target, each in collections.items()
        }
        return UpgradeReport(
            generation=generation,
            counts=counts,
            skipped=every,
            carried=self.carried,
            fit_anew=self._fit_anew(),
        )

    def _check_missing(self, waiting: Mapping[Target, Waiting] | None = None) -> None:
        """Note the items that cannot be encoded; those that wait for it may yet be."""
        for target, each in self.collections.items():
            self.skipped[target] = each.missing(None if waiting is None else waiting[target].rows)
        every = [each for of_target in self.skipped.values() for each in of_target]
        if every and not self.skip_missing:
            total = sum(each.live.count for each in self.collections.values())
            raise MissingSourcesError(self.index.path, every, total)

    def _check_some_left(self) -> None:
        """Refuse a collection without items."""
        for target, each in self.collections.items():
            if each.live.count == len(self.skipped[target]):
                raise InputError(
                    f"{target}: no item is left, and a generation needs at least one; add some, or "
                    "build an index without this collection"
                )

    def _codec(self, target: Target) -> TokenCodec:
        """Return the codec of a collection, in the form of the live one."""
        shards = {each: of.encodings.shards for each, of in self.collections.items()}
        asking = [shard for each in shards if each != target for shard in shards[each]]
        return codec_of(self.collections[target].live.entry.token_dtype, shards[target], asking)

    def _fingerprint(self) -> str:
        """Hash what determines the generation."""
        live = self.index
        digest = hashlib.sha256(f"upgrade {live.manifest.fingerprint} {self.model.id}\n".encode())
        digest.update((generation_folder(live.path, live.generation) / DIGEST).read_bytes())
        for target, each in self.collections.items():
            digest.update(f"{target} ".encode() + each.kept.tobytes())
        return digest.hexdigest()

    @contextmanager
    def _carry(self, generation: int) -> Generator[None]:
        """Bring the new generation up to date, and lock the index until it is live."""
        root, each_one = self.index.path, self.collections.items()
        for _, collection in each_one:
            collection.catch_up()
        with changes_lock(root):
            for _, collection in each_one:
                collection.catch_up()
            self._check_missing()
            with closing(WritableGeneration(root, generation, self.model.id)) as new:
                self.carried = sum(each.carry(new.collection(target)) for target, each in each_one)
            yield

    def _fit_anew(self) -> list[str]:
        """Name the commands whose results were those of the old model, and which the new lacks."""
        live, (calibration, correction) = self.index.manifest, self.fitted
        commands = {
            "tune": any(each.tuning is not None for each in live.collections.values()),
            "correct": live.correction is not None and correction is None,
            "calibrate": live.calibration is not None and calibration is None,
        }
        return [command for command, is_missing in commands.items() if is_missing]
