"""``aladin index build``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from aladin_network.conversion.named_models import DEFAULT_MODEL
from aladin_network.errors import InputError
from aladin_network.types import DeviceName
from aladin_service.commands.flags import Flags, with_flags
from aladin_service.commands.index.build_options import (
    BuildDeviceOption,
    ExcludeOption,
    ImagesOption,
    ModelOption,
    OutOption,
    TextsOption,
    settings_flags,
)
from aladin_service.commands.index.info import print_generation, warn_of_places
from aladin_service.commands.options import (
    DetectorOption,
    PartOfDataOption,
    PhotosRootOption,
    RayCpusOption,
    RayOption,
    RayWorkersOption,
    RegionLabelsOption,
    RegionsOption,
    building_device,
    check_ray_options,
    opened_regions,
    workers_device,
)
from aladin_service.commands.progress import stderr_progress
from aladin_service.library.places import libraries_folder, model_folder

if TYPE_CHECKING:
    from aladin_index.encode.region_sources import RegionSource
    from aladin_index.settings import BuildSettings
    from aladin_training.data.regions import RegionStore


def _settings() -> Flags:
    from aladin_index.settings import BuildSettings

    return settings_flags(BuildSettings)


@with_flags(settings=_settings)
def build(
    out: OutOption,
    model: ModelOption = Path(DEFAULT_MODEL),
    images: ImagesOption = None,
    texts: TextsOption = None,
    split: PartOfDataOption = None,
    photos_root: PhotosRootOption = None,
    exclude: ExcludeOption = None,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    detector: DetectorOption = None,
    device: BuildDeviceOption = "cpu",
    *,
    settings: BuildSettings,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    ray_cpus: RayCpusOption = None,
) -> None:
    """Build an index of photos, of texts, or of both.

    In: --model, and --images, --texts or both. Out: in the folder --out, a new generation of the
    index, live once it is complete, with a copy of the model; its contents are printed on stdout.
    It holds these items alone: additions to an earlier generation stay with that one. Skipped and
    named on stderr, three of a kind: photos, texts and lines that cannot be used, files that look
    like photos in an unknown format, broken links, and links to folders, which are not followed;
    --strict ends at the first of them. Counted there in one line: files of
    a folder that are no photos, and what is skipped in it as hidden or by --exclude.

    Whoever may search the index can see its photos. A source from elsewhere may name any picture
    here, by an absolute path, ".." or a link: --photos-root skips what is outside a folder.

    A build can be killed at any moment and run again with --resume: the files are identical to
    those of an uninterrupted build. The progress shows how the elapsed time is spent: list (read
    SRC), read (photos from disk), decode (to pixels), encode (network), write, ann. Threads take
    photos and texts through the first three while files are written: read_s, decode_s and encode_s
    are the time that was spent waiting for them, split in proportion to their work. If the first
    two are large, increase --readers; if encode_s is, use a faster --device.

    With --ray the nodes of a cluster encode; this machine lists, writes and makes the same files.
    Nodes need the same package versions as this machine, and the photos at the same paths. Shards
    of a lost node go to others, and a build can be resumed with --ray or without. The seconds are
    then split in proportion to the work of all workers, start (loading the network) included.
    --device is the workers' device; with cuda each has its own GPU.
    """
    from aladin_service.library.libraries import check_output

    check_ray_options(ray, ray_workers, ray_cpus)
    sources = _Sources(images, texts, split, photos_root, exclude, regions, region_labels, detector)
    readers = settings.readers or (os.cpu_count() if ray is None else ray_cpus) or 1
    settings = dataclasses.replace(settings, readers=readers)
    check_output(out, libraries_folder(), replace=settings.replace or settings.resume)
    checkpoint = _named_model(model, sources)
    cluster = _Cluster(ray, ray_workers, ray_cpus)
    with explain_resume(out):
        _build(checkpoint, out, sources, settings, device, cluster)


class _Sources(NamedTuple):
    """The sources to index, as given by the options."""

    images: list[Path] | None
    texts: list[Path] | None
    split: str | None
    photos_root: Path | None
    exclude: list[str] | None
    regions: Path | None
    region_labels: Path | None
    detector: str | None


def _named_model(model: Path, sources: _Sources) -> Path:
    """Return the checkpoint of --model; it may have to be downloaded, so sources come first."""
    if not sources.images and not sources.texts:
        raise InputError("expected --images, --texts or both, got neither")
    return model_folder(model)


class _Cluster(NamedTuple):
    """The encoding machines, as given by the options: a Ray cluster or this machine."""

    address: str | None
    workers: int | None
    cpus: int | None


def _build(
    model: Path,
    out: Path,
    sources: _Sources,
    settings: BuildSettings,
    device: DeviceName,
    cluster: _Cluster,
) -> None:
    """Build, and print the contents of the new generation."""
    from aladin_index.building.builder import build_index
    from aladin_index.cluster.pool import WorkerSettings
    from aladin_index.cluster.ray_encoding import connected, ray_encoding
    from aladin_index.format.layout import CURRENT, live_generation
    from aladin_network.heads.trained import read_untrained
    from aladin_service.item_sources import images_of_all, photo_places, texts_of_all
    from aladin_training.data.folder_rules import FolderRules

    images, texts, split = sources.images, sources.texts, sources.split
    with ExitStack() as stack:
        ray = None if cluster.address is None else stack.enter_context(connected(cluster.address))
        own_device = building_device(device if ray is None else "cpu")
        settings = dataclasses.replace(
            settings, device=own_device if ray is None else workers_device(ray, device)
        )
        store = opened_regions(sources.regions, sources.region_labels)
        places = photo_places(images, sources.photos_root) if images else None
        rules = FolderRules(tuple(sources.exclude or ()), sidecars=settings.exif)
        photos = images_of_all(images, split, store, places, rules) if images else None
        found = _find_regions(model, sources, store, own_device, settings.device)
        lines = texts_of_all(texts, split, images or ()) if texts else None
        before = live_generation(out) if (out / CURRENT).exists() else None
        encoding = None
        if ray is not None:
            workers = WorkerSettings(
                cpus=cluster.cpus or 1,
                gpus=int(settings.device == "cuda"),
                workers=cluster.workers,
            )
            encoding = stack.enter_context(
                ray_encoding(ray, model, settings, workers, found.open_on_node)
            )
        progress = stack.enter_context(stderr_progress())
        rest = settings, progress, found.here, encoding
        report = build_index(model, out, photos, lines, *rest)
    print_generation(out, report.generation, report.counts, report.skipped)
    untrained = read_untrained(model)
    if untrained is not None:
        typer.echo(f"warning: {untrained}", err=True)
    if places is not None:
        warn_of_places(places, rules)
    _warn_of_changes(out, before, report.generation)


class _Regions(NamedTuple):
    """Where the regions of photos come from.

    Attributes:
        here: Source of regions on this machine, or None for a network that reads photos.
        open_on_node: Opens the same source on a node of a cluster, or None without one.
    """

    here: RegionSource | None
    open_on_node: Callable[[], RegionSource] | None


def _find_regions(
    model: Path, sources: _Sources, store: RegionStore | None, own_device: str, worker_device: str
) -> _Regions:
    from aladin_network.detectors.base import load_detector
    from aladin_network.graphs.loading import load_for_inference
    from aladin_service.door import detector_for, named_detector
    from aladin_training.data.regions import open_regions

    if sources.regions is not None:
        labels = None if sources.region_labels is None else sources.region_labels.absolute()
        return _Regions(store, partial(open_regions, sources.regions.absolute(), labels))
    name = named_detector(sources.detector)
    if not sources.images or name is None:
        return _Regions(store, None)
    encoder = load_for_inference(model).model.image.encoder
    finder = detector_for(encoder, sources.detector, own_device)
    if finder is None:
        return _Regions(store, None)
    return _Regions(finder, partial(load_detector, name, worker_device))


def _warn_of_changes(out: Path, before: int | None, generation: int) -> None:
    """Warn if additions to the earlier generation and deletions from it are not in the new one."""
    from aladin_index.generations.history import pending_changes

    if before in (None, generation):
        return
    if any(any(changes) for changes in pending_changes(out, before).values()):
        typer.echo(
            f"what was added to generation {before} and deleted from it is not part of the new "
            f"one: add it again, or go back with `aladin index rollback {out} --to {before}`",
            err=True,
        )


@contextmanager
def explain_resume(out: Path) -> Generator[None]:
    """Tell a user who interrupts a build how to continue it."""
    from aladin_index.building.resume import can_resume

    try:
        yield
    except KeyboardInterrupt:
        if can_resume(out):
            what = "the same command with --resume continues from there"
        else:
            what = "nothing was encoded yet: run the same command again"
        typer.echo(f"stopped: {what}", err=True)
        raise
