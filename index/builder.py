"""Builds an index: sharded, resumable after a kill at any point, published in one step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aladin.checkpoint import load_checkpoint
from aladin.errors import InputError
from aladin.model import AladinModel
from aladin.progress import NullProgress, Progress
from index.ann import check_factory, choose_factory
from index.assemble import SideShards, write_arrays, write_first_stage
from index.disk import disk_errors, only_builder
from index.item_encoders import ItemEncoder, LeftOut, PhotoEncoder, SentenceEncoder
from index.layout import BUILD, generation_folder, live_generation
from index.manifest import (
    SCHEMA_VERSION,
    Manifest,
    ModelEntry,
    SideEntry,
    describe_files,
    read_manifest,
    write_manifest,
)
from index.plan import Plan, begin, discard, fingerprint_of, is_published
from index.publish import describe_model, install_model, publish
from index.settings import BuildSettings, Target
from index.shards import Shard, read_shard, write_shard
from index.side import LEFT_OUT, side_files
from index.source_items import ImageItem, SourceItem, TextItem, check_items
from index.stage_seconds import StageSeconds

_UNITS: dict[Target, str] = {"images": "photos", "texts": "texts"}


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build made.

    Attributes:
        generation: the new live generation.
        counts: number of items of each side.
        left_out: items that could not be used, with the reason.
        seconds: time by stage: read, encode, write, ann.
    """

    generation: int
    counts: dict[Target, int]
    left_out: list[LeftOut]
    seconds: dict[str, float]


def build_index(
    checkpoint_folder: Path,
    out: Path,
    images: Sequence[ImageItem] | None,
    texts: Sequence[TextItem] | None,
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Build a new generation of an index and make it live.

    A build that was cut short leaves its finished shards in ``out/.build``; until the last
    step, readers see what was live before.

    Args:
        checkpoint_folder: the model; copied into a new index, and the only one that an
            existing index takes.
        out: folder of the index, new or existing.
        images: None for an index without images.
        texts: None for an index without texts.
        settings: options.
        progress: told of items, vectors and seconds by stage.

    Raises:
        InputError: nothing to index, an id repeats, or no item of a side can be used.
        ConfigError: the ANN that is asked for cannot be built.
        CheckpointError: the checkpoint cannot be loaded.
        IndexMismatchError: the index was built with another model, or the build to be resumed
            is another one.
        IndexWriteError: the disk is full or cannot be written, or another build is running.
    """
    settings = settings or BuildSettings()
    progress = progress or NullProgress()
    items: dict[Target, Sequence[SourceItem]] = {}
    if images is not None:
        items["images"] = images
    if texts is not None:
        items["texts"] = texts
    if not items:
        raise InputError("expected images, texts or both to index, got neither")
    for target, of_target in items.items():
        check_items(of_target, target)
    checkpoint = load_checkpoint(checkpoint_folder, settings.device)
    for of_target in items.values():
        factory = choose_factory(settings.ann, len(of_target))
        check_factory(factory, checkpoint.model.matching.dim, len(of_target))
    with disk_errors(out), only_builder(out):
        model = describe_model(checkpoint_folder, checkpoint.model_id)
        install_model(out, checkpoint_folder, model)
        fingerprint = fingerprint_of(model, items, settings)
        if settings.resume and is_published(out, fingerprint):
            discard(out)
            return _report(out, live_generation(out), {})
        plan = begin(out, fingerprint, resume=settings.resume)
        build = _Build(out, plan, items, settings, progress)
        return build.run(checkpoint.model, model)


class _Build:
    """One build, from its plan to the live generation."""

    def __init__(
        self,
        root: Path,
        plan: Plan,
        items: dict[Target, Sequence[SourceItem]],
        settings: BuildSettings,
        progress: Progress,
    ) -> None:
        self._root = root
        self._work = root / BUILD
        self._finished = root / BUILD / "generation"
        self._plan = plan
        self._items = items
        self._settings = settings
        self._progress = progress
        self._seconds = StageSeconds()

    def run(self, network: AladinModel, model: ModelEntry) -> BuildReport:
        """Do what is left to do."""
        sides: dict[Target, SideShards] = {}
        for target in self._items:
            sides[target] = self._gather(target, self._encode(target, network))
        if not generation_folder(self._root, self._plan.generation).exists():
            self._assemble(sides, model)
        publish(self._root, self._finished, self._plan.generation)
        discard(self._root)
        return _report(self._root, self._plan.generation, self._seconds.seconds)

    def _encode(self, target: Target, network: AladinModel) -> list[Shard]:
        """Encode the shards that are not on the disk yet."""
        items, settings = self._items[target], self._settings
        encoder: ItemEncoder
        if target == "images":
            encoder = PhotoEncoder(network, settings.limits)
        else:
            encoder = SentenceEncoder(network)
        self._progress.start(len(items), _UNITS[target])
        shards: list[Shard] = []
        for start in range(0, len(items), settings.shard_items):
            rows = range(start, min(start + settings.shard_items, len(items)))
            folder = self._work / target / f"shard-{len(shards):05d}"
            shard = read_shard(folder)
            if shard is None:
                write_shard(folder, encoder, items, rows, settings, self._progress, self._seconds)
                shard = read_shard(folder)
                assert shard is not None
            else:
                self._progress.advance(len(rows))
            shards.append(shard)
        return shards

    def _gather(self, target: Target, shards: list[Shard]) -> SideShards:
        left_out = [entry for shard in shards for entry in shard.left_out]
        if len(left_out) == len(self._items[target]):
            discard(self._root)
            raise InputError(
                f"{target}: none of {len(left_out)} could be used, e.g. {left_out[0].id!r}: "
                f"{left_out[0].reason}"
            )
        return SideShards.gather(shards)

    def _assemble(self, sides: dict[Target, SideShards], model: ModelEntry) -> None:
        """Write all files of the generation, its manifest last."""
        shutil.rmtree(self._finished, ignore_errors=True)
        with self._seconds.measure("write"):
            for target, side in sides.items():
                (self._finished / target).mkdir(parents=True)
                write_arrays(self._finished / target, side, self._items[target], self._settings)
        entries: dict[Target, SideEntry] = {}
        with self._seconds.measure("ann"):
            for target in sides:
                others: list[Target] = [other for other in sides if other != target]
                asking = others[0] if others else target
                entries[target] = write_first_stage(
                    self._finished / target,
                    sides[target],
                    self._finished / asking,
                    sides[asking],
                    self._settings,
                    self._progress,
                )
        names = [name for target, entry in entries.items() for name in side_files(target, entry)]
        with self._seconds.measure("write"):
            manifest = Manifest(
                schema_version=SCHEMA_VERSION,
                generation=self._plan.generation,
                metric="inner_product",
                default_candidates=self._settings.default_candidates,
                fingerprint=self._plan.fingerprint,
                model=model,
                images=entries.get("images"),
                texts=entries.get("texts"),
                files=describe_files(self._finished, names),
            )
            write_manifest(self._finished, manifest)
        self._progress.note(**self._seconds.notes())


def _report(root: Path, generation: int, seconds: dict[str, float]) -> BuildReport:
    folder = generation_folder(root, generation)
    manifest = read_manifest(folder)
    counts: dict[Target, int] = {}
    left_out: list[LeftOut] = []
    for target in manifest.targets:
        entry = manifest.side(target)
        assert entry is not None
        counts[target] = entry.count
        lines = json.loads((folder / target / LEFT_OUT).read_text(encoding="utf-8"))
        left_out += [LeftOut(*line) for line in lines]
    return BuildReport(generation=generation, counts=counts, left_out=left_out, seconds=seconds)
