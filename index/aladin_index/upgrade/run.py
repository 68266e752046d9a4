"""Upgrades an index of files to another model, while searches and changes continue.

    upgrade_index(root, checkpoint_folder, UpgradeSettings())

The live generation is encoded again beside itself: parts are searched as they are finished
(`aladin_index.upgrade.searcher`), and changes go to the live generation as ever. When all items are
encoded, a generation of the new model alone is written and made live in one step, with the changes
that came meanwhile. A process that is killed at any moment loses a part at most.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.region_sources import RegionSource, check_regions
from aladin_index.format.disk import disk_errors, only_builder, remove_folder
from aladin_index.format.layout import (
    UPGRADE,
    check_kept_in_files,
    generation_folder,
    live_generation,
    published_generations,
    set_live_generation,
)
from aladin_index.format.manifest import Manifest, read_manifest
from aladin_index.format.models import copy_upgrade_model, drop_models, model_folder
from aladin_index.format.records import SkippedItem
from aladin_index.format.upgrade_methods import RestMethod, read_rest_methods
from aladin_index.format.upgrade_plan import UpgradePlan, read_plan, write_plan
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.writer import describe_model
from aladin_index.upgrade.encoding import EncodingSettings, PartsWriter
from aladin_index.upgrade.finish import NewGeneration, Skipped
from aladin_index.upgrade.measuring import choose_methods
from aladin_index.upgrade.methods import write_methods
from aladin_index.upgrade.successor import SuccessorIndex
from aladin_network.calibration.fitted_files import copy_fitted
from aladin_network.checkpoint_files import Checkpoint, read_model_id
from aladin_network.errors import (
    IndexMismatchError,
    InputError,
    SearchIndexError,
    UpgradeUnfinishedError,
)
from aladin_network.files import atomic_folder
from aladin_network.graphs.loading import load_for_inference
from aladin_network.types import NullProgress, Progress, Target

_EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class UpgradeSettings:
    """Options of an upgrade.

    Attributes:
        resume: Whether to go on with an unfinished upgrade; otherwise there must be none.
        skip_missing: Whether the new generation is made live without the items that cannot be
            encoded again.
        queries: Texts by which a bridge and the old model are compared; none for the captions and
            the texts of the index.
        encoding: How items are encoded.
        device: Device of the networks.
    """

    resume: bool = False
    skip_missing: bool = False
    queries: Sequence[str] = ()
    encoding: EncodingSettings = field(default_factory=EncodingSettings)
    device: str = "cpu"


class UpgradeReport(NamedTuple):
    """Result of an upgrade.

    Attributes:
        generation: Generation that is now live.
        counts: Number of items of each collection, including changes that came last.
        skipped: Items that are no longer in the index, with the reason.
        carried: Number of changes that came while the generation was written.
        not_kept: What was fitted to the old model and has to be fitted anew: "tune", "fit",
            "calibrate", "correct".
        methods: How items were asked before they were encoded.
        seconds: Time in seconds by stage.
    """

    generation: int
    counts: dict[Target, int]
    skipped: list[SkippedItem]
    carried: int
    not_kept: list[str]
    methods: dict[Target, RestMethod]
    seconds: dict[str, float]


class MissingSourcesError(InputError):
    """Items cannot be encoded again, and the index is not to go on without them.

    Attributes:
        skipped: These items, with the reason.
    """

    def __init__(self, root: Path, skipped: Sequence[SkippedItem]) -> None:
        shown = "; ".join(f"{each.id!r}: {each.reason}" for each in skipped[:_EXAMPLES])
        more = "; ..." if len(skipped) > _EXAMPLES else ""
        super().__init__(
            f"{root}: {len(skipped)} items cannot be encoded again ({shown}{more}); the old model "
            "goes on answering for them. Restore their photos and run the upgrade with --resume, "
            "or with --resume --skip-missing to finish it without them"
        )
        self.skipped = list(skipped)


def upgrade_index(
    root: Path,
    checkpoint_folder: Path | None,
    settings: UpgradeSettings | None = None,
    progress: Progress | None = None,
    regions: RegionSource | None = None,
) -> UpgradeReport:
    """Encode all items by another model, and make a generation of it live.

    Args:
        root: Index folder.
        checkpoint_folder: Checkpoint of the new model; None for that of the upgrade to be resumed.
        settings: Options.
        progress: Receives the progress in items, and the seconds of each stage.
        regions: Regions of photos, for a new model that reads regions.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        UpgradeUnfinishedError: If an upgrade is unfinished and is not to be resumed.
        InputError: If there is no model and no upgrade to resume, the index is of this model
            already, the model is of another kind, or a collection has no item left.
        MissingSourcesError: If items cannot be encoded again, unless they may be skipped.
        IndexMismatchError: If the upgrade to be resumed is one to another model, or a generation
            has the weights of the new model and another of its files.
        CheckpointError: If a checkpoint cannot be loaded.
        IndexWriteError: If the disk is full or cannot be written, or the index is being built.
    """
    settings = settings or UpgradeSettings()
    check_kept_in_files(root)
    live_generation(root)  # nothing is written where there is no index
    model_id = None if checkpoint_folder is None else read_model_id(checkpoint_folder)
    with disk_errors(root), only_builder(root, upgrades=True), ExitStack() as stack:
        live = read_manifest(generation_folder(root, live_generation(root)))
        plan = _plan_to_resume(root, model_id, resume=settings.resume)
        if plan is None and settings.resume and _is_finished(live, model_id):
            return _report_of(live)
        folder = checkpoint_folder if plan is None else model_folder(root, plan.model.id)
        if folder is None:
            raise InputError(f"{root}: expected --model, as there is no upgrade to resume")
        if plan is None and model_id == live.model.id:
            raise InputError(f"{root}: expected another model than the index's own, got that one")
        checkpoint = load_for_inference(folder, settings.device)
        index = stack.enter_context(open_index(root))
        _check_kind(index, checkpoint, regions)
        if plan is None:
            plan = _begin(root, live, folder, checkpoint.model_id)
        upgrade = _Upgrade(index, plan, checkpoint, settings, progress or NullProgress(), regions)
        report = upgrade.run()
        remove_folder(root, root / UPGRADE)
        return report


def discard_upgrade(root: Path) -> UpgradePlan | None:
    """Give up an unfinished upgrade: the old model answers alone again.

    Returns:
        The plan that was given up, or None if there was none or it could not be read.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        IndexWriteError: If the disk cannot be written, or the upgrade is running.
    """
    check_kept_in_files(root)
    generation = live_generation(root)
    with disk_errors(root), only_builder(root, upgrades=True):
        try:
            plan = read_plan(root)
        except SearchIndexError:
            plan = None
        if (root / UPGRADE).exists():
            remove_folder(root, root / UPGRADE)
            drop_models(root)
            set_live_generation(root, generation)  # so that services look at the index again
    return plan


def _plan_to_resume(root: Path, model_id: str | None, *, resume: bool) -> UpgradePlan | None:
    """Return the plan to go on with, or None if there is none."""
    plan = read_plan(root)
    if plan is None:
        return None
    if not resume:
        raise UpgradeUnfinishedError(root)
    if model_id not in (None, plan.model.id):
        what = f"{root}: model of the upgrade to be resumed"
        raise IndexMismatchError(what, plan.model.id, model_id)
    return plan


def _is_finished(live: Manifest, model_id: str | None) -> bool:
    """Whether the upgrade to be resumed was killed when all was done."""
    return live.made_by == "upgrade" and model_id in (None, live.model.id)


def _begin(root: Path, live: Manifest, checkpoint_folder: Path, model_id: str) -> UpgradePlan:
    """Copy the new model into the index, and write the plan."""
    model = describe_model(checkpoint_folder, model_id)
    copy = copy_upgrade_model(checkpoint_folder, root, model, _readable_manifests(root))
    copy_fitted(checkpoint_folder, copy, model_id)
    plan = UpgradePlan(
        run=secrets.token_hex(8),
        generation=live.generation,
        old_model_id=live.model.id,
        model=model,
        started_at_s=time.time(),
    )
    with atomic_folder(root / UPGRADE) as partial:
        write_plan(partial, plan)
    # The same one: services look at the index again, and load the new model in good time.
    set_live_generation(root, live.generation)
    return plan


def _readable_manifests(root: Path) -> Iterator[Manifest]:
    """Read the manifests of all generations but damaged ones, which need no model."""
    for number in published_generations(root):
        with suppress(SearchIndexError):
            yield read_manifest(generation_folder(root, number))


def _check_kind(index: SearchIndex, checkpoint: Checkpoint, regions: RegionSource | None) -> None:
    """Refuse a model that cannot take the place of the old one."""
    if index.images is not None:
        check_regions(checkpoint.model, regions)


def _report_of(manifest: Manifest) -> UpgradeReport:
    counts: dict[Target, int] = {target: entry.count for target, entry in manifest.sides.items()}
    return UpgradeReport(manifest.generation, counts, [], 0, [], {}, {})


class _Upgrade:
    """One process's share of an upgrade, to its end."""

    def __init__(
        self,
        index: SearchIndex,
        plan: UpgradePlan,
        checkpoint: Checkpoint,
        settings: UpgradeSettings,
        progress: Progress,
        regions: RegionSource | None,
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._seconds = StageSeconds()
        self._successor = SuccessorIndex(index, plan.model, checkpoint)
        self._writers: dict[Target, PartsWriter] = {
            target: PartsWriter(
                self._successor,
                target,
                settings.encoding,
                regions if target == "images" else None,
                self._seconds,
                progress,
            )
            for target in index.manifest.targets
        }

    def run(self) -> UpgradeReport:
        """Encode what is not encoded yet, and make the new generation live."""
        for writer in self._writers.values():
            writer.write_sample()
        successor = self._successor
        if read_rest_methods(successor.path) is None:
            write_methods(successor.path, choose_methods(successor, self._settings.queries))
        # Services look at the index again: from now on, both models answer.
        set_live_generation(successor.path, successor.generation)
        for writer in self._writers.values():
            writer.write_rest()
        rest = self._skipped, self._progress, self._seconds
        new = NewGeneration(successor, self._writers, *rest)
        generation = new.write()
        return UpgradeReport(
            generation=generation,
            counts=new.counts,
            skipped=new.skipped,
            carried=new.carried,
            not_kept=new.not_kept,
            methods=read_rest_methods(successor.path) or {},
            seconds=self._seconds.seconds,
        )

    def _skipped(self) -> Skipped:
        """Return the live items that cannot be encoded.

        Raises:
            MissingSourcesError: If there are any, and they may not be skipped.
        """
        found: Skipped = {}
        for target, writer in self._writers.items():
            skipped = writer.skipped
            missing = [skipped[row] for row in writer.missing().tolist() if row in skipped]
            found[target] = [SkippedItem(each.id, each.reason) for each in missing]
        every = [each for of_target in found.values() for each in of_target]
        if every and not self._settings.skip_missing:
            raise MissingSourcesError(self._successor.path, every)
        return found
