"""Builds an index: sharded, resumable after an interruption, published atomically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aladin_index.ann.first_stage_build import check_first_stages
from aladin_index.ann.hub_correction import open_correction
from aladin_index.building.catalogue import Catalogue, collection_source, listed
from aladin_index.building.resume import (
    BuildPlan,
    begin,
    can_resume,
    discard,
    fingerprint_of,
    is_placed,
    is_published,
    items_a_shard,
)
from aladin_index.building.shards import (
    LocalEncoding,
    Shard,
    ShardEncoding,
    ShardFormat,
    ShardWork,
    read_shard,
)
from aladin_index.encode.item_encoders import warn_of_cut
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.region_sources import RegionReader, RegionSource, check_regions
from aladin_index.encode.source_items import ImageItem, SourceItem, TextItem
from aladin_index.format.disk import check_folder, disk_errors, only_builder
from aladin_index.format.layout import BUILD, generation_folder, live_generation
from aladin_index.format.manifest import ModelEntry, read_manifest
from aladin_index.format.skipped import SkippedItem, read_skipped
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.history import check_replaceable
from aladin_index.generations.writer import (
    NewGeneration,
    describe_model,
    install_model,
    write_generation,
)
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import Calibration
from aladin_network.calibration.fitted_files import read_fitted
from aladin_network.errors import ConfigError, IndexNotReadyError, InputError, brief
from aladin_network.files import removed_if_refused
from aladin_network.graphs.loading import load_for_inference
from aladin_network.scoring.hub_correction import HubCorrection
from aladin_network.types import NullProgress, Progress, Target

_UNITS: dict[Target, str] = {"images": "photos", "texts": "texts"}


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """Result of a build, an upgrade or an import.

    Attributes:
        generation: Number of the new live generation.
        counts: Number of items of each collection.
        skipped: Items that could not be used, with the reason.
        seconds: Time in seconds by stage of a build: list, read, decode, encode, write, ann;
            together the elapsed time.
    """

    generation: int
    counts: Mapping[Target, int]
    skipped: Sequence[SkippedItem] = ()
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])


def build_index(
    checkpoint_folder: Path,
    out: Path,
    images: Iterable[ImageItem | SkippedItem] | None,
    texts: Iterable[TextItem | SkippedItem] | None,
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
    regions: RegionSource | None = None,
    encoding: ShardEncoding | None = None,
) -> BuildReport:
    """Build a new generation of an index and make it live.

    The items are read once, to a catalogue on the disk, and encoded shard by shard; memory does
    not grow with their number. A build that was cut short leaves its finished shards in
    ``out/.build``; until the last step, readers see what was live before.

    Args:
        checkpoint_folder: Checkpoint of the model. A new index gets a copy of it; an existing index
            accepts no other model. Its calibration goes into the manifest, and its hubness
            correction corrects the items; without them, those of the live generation stay.
        out: Index folder, new or existing.
        images: Images, including those that their source skipped, or None for an index without
            images.
        texts: Texts, or None for an index without texts.
        settings: Build options.
        progress: Receives the number of items and vectors and the seconds of each stage.
        regions: Regions of the images, for a network that reads regions.
        encoding: Encoder of the shards, or None if this process encodes them, on `settings.device`.
            An interrupted build may be resumed with another one.

    Raises:
        InputError: If there is nothing to index, regions for a network that reads photos or none
            for one that reads regions, no usable item in a collection, or, if the settings are
            strict, an item that cannot be used.
        ConfigError: If the requested ANN cannot be built, `out` holds something else than an
            index, or one that may not be replaced, regions are to be chosen without texts, or
            nothing here encodes in the precision.
        CheckpointError: If the checkpoint cannot be loaded.
        IndexMismatchError: If the index was built with another model, or the build to be resumed
            is another one.
        IndexWriteError: If the disk is full or cannot be written, or another build is running.
        ClusterError: If the nodes that encode are unavailable, or fail repeatedly.
    """
    settings = settings or BuildSettings()
    progress = progress or NullProgress()
    sources: dict[Target, Iterable[SourceItem | SkippedItem]] = {}
    if images is not None:
        sources["images"] = images
    if texts is not None:
        sources["texts"] = texts
    if not sources:
        raise InputError("expected images, texts or both to index, got neither")
    check_folder(out)
    # If others encode, this machine may lack their device; it only needs the network's properties.
    device = settings.device if encoding is None else "cpu"
    checkpoint = load_for_inference(checkpoint_folder, device)
    network = checkpoint.model
    if images is not None:
        check_regions(network, regions)
    seconds = StageSeconds()
    refused = removed_if_refused(out, errors=(InputError, ConfigError))
    with refused, disk_errors(out), only_builder(out), ExitStack() as stack:
        if not settings.resume:
            discard(out)
        catalogues = stack.enter_context(listed(out, sources, settings, progress, seconds))
        shapes: dict[Target, tuple[int, int]] = {
            target: (len(each.rows), network.embedding_dim) for target, each in catalogues.items()
        }
        check_first_stages(shapes, settings)
        model = describe_model(checkpoint_folder, checkpoint.model_id)
        install_model(out, checkpoint_folder, model)
        with seconds.measure("list"):
            contents = _content_fingerprints(catalogues, regions)
        calibration, correction = _fitted(checkpoint_folder, checkpoint.model_id, out)
        fingerprint = fingerprint_of(model, contents, settings, calibration, correction)
        if settings.resume and is_published(out, fingerprint):
            discard(out)
            return _report(out, live_generation(out), seconds.seconds)
        check_replaceable(out, replace=settings.replace or (settings.resume and can_resume(out)))
        shard_items: dict[Target, int] = {
            target: items_a_shard(each.rows, settings) for target, each in catalogues.items()
        }
        plan = begin(out, fingerprint, shard_items, resume=settings.resume)
        encoding = encoding or LocalEncoding(network, settings, regions)
        form = ShardFormat.of(network)
        build = _Build(out, form, plan, catalogues, encoding, settings, progress, seconds)
        generation = build.run(model, calibration, correction)
        discard(out)
    return _report(out, generation, seconds.seconds)


def _content_fingerprints(
    catalogues: Mapping[Target, Catalogue], regions: RegionSource | None
) -> dict[Target, str]:
    """Identify the items of a build, the state of their files and the regions of the photos."""
    contents: dict[Target, str] = {
        target: catalogue.fingerprint() for target, catalogue in catalogues.items()
    }
    if regions is not None and "images" in contents:
        # A detector's regions are known by its id, as the photos are known.
        known = regions.fingerprint if isinstance(regions, RegionReader) else regions.id
        contents["images"] += f" {known}"
    return contents


@dataclass(frozen=True)
class _Build:
    """One build, from its plan to the live generation."""

    root: Path
    form: ShardFormat
    plan: BuildPlan
    catalogues: Mapping[Target, Catalogue]
    encoding: ShardEncoding
    settings: BuildSettings
    progress: Progress
    seconds: StageSeconds

    def run(
        self,
        model: ModelEntry,
        calibration: Calibration | None,
        correction: HubCorrection | None,
    ) -> int:
        """Do the remaining work, and return the number of the generation."""
        if is_placed(self.root, self.plan):
            return self.plan.generation
        settings = self.settings
        shards: dict[Target, list[Shard]] = {
            target: self._encode(target) for target in self.catalogues
        }
        collections: dict[Target, CollectionSource] = {}
        for target, catalogue in self.catalogues.items():
            asking = [shard for other in shards if other != target for shard in shards[other]]
            collections[target] = collection_source(shards[target], asking, catalogue, settings)
        new = NewGeneration(
            collections=collections,
            model=model,
            settings=settings,
            fingerprint=self.plan.fingerprint,
            calibration=calibration,
            correction=correction,
        )
        return write_generation(self.root, new, self.progress, self.seconds)

    def _encode(self, target: Target) -> list[Shard]:
        """Encode the shards that are not on the disk yet; return all shards."""
        catalogue, form = self.catalogues[target], self.form
        rows = catalogue.rows
        work = self.root / BUILD / target
        planned = {
            work / f"shard-{number:05d}": of_shard
            for number, of_shard in enumerate(self.plan.shards(target, rows))
        }
        missing = {
            folder: of_shard
            for folder, of_shard in planned.items()
            if read_shard(folder, form) is None
        }
        # Rate and remaining time refer to the remaining work only.
        left = sum(len(of_shard) for of_shard in missing.values())
        self.progress.start(left, _UNITS[target])
        if left < len(rows):
            self.progress.note(resumed_after=float(len(rows) - left))
        if missing:
            todo = ShardWork(target=target, form=form, shards=missing, items=catalogue.items)
            self.encoding.encode(todo, self.progress, self.seconds)
        shards = [shard for folder in planned if (shard := read_shard(folder, form)) is not None]
        assert len(shards) == len(planned)  # as `ShardEncoding` promises
        if target == "texts":
            warn_of_cut(found.metadata for shard in shards for found in shard.prepared())
        skipped = [entry for shard in shards for entry in shard.skipped]
        if self.settings.strict and skipped:  # of a resumed build, or by other machines
            raise skipped[0].refused()
        if len(skipped) == len(rows):
            discard(self.root)
            raise InputError(
                f"{target}: none of {len(skipped)} could be used, e.g. {brief(skipped[0].id)}: "
                f"{skipped[0].reason}"
            )
        return shards


def _fitted(
    checkpoint_folder: Path, model_id: str, root: Path
) -> tuple[Calibration | None, HubCorrection | None]:
    """Return the checkpoint's calibration and correction, or else those of the live generation."""
    calibration, correction = read_fitted(checkpoint_folder, model_id)
    try:
        folder = generation_folder(root, live_generation(root))
    except IndexNotReadyError:
        return calibration, correction
    live = read_manifest(folder)
    if calibration is None and correction is None and live.correction is not None:
        correction = open_correction(folder)
    # Probabilities are those of scores that are corrected alike.
    if live.correction == (None if correction is None else correction.constants):
        calibration = calibration or live.calibration
    return calibration, correction


def _report(root: Path, generation: int, seconds: dict[str, float]) -> BuildReport:
    folder = generation_folder(root, generation)
    manifest = read_manifest(folder)
    counts: dict[Target, int] = {}
    skipped: list[SkippedItem] = []
    for target in manifest.targets:
        entry = manifest.collection(target)
        assert entry is not None
        counts[target] = entry.count
        skipped += read_skipped(folder / target)
    return BuildReport(generation=generation, counts=counts, skipped=skipped, seconds=seconds)
