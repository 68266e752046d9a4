"""Keeps the index of a library in step with its folders: a first index, then pass after pass.

Runs in a process of its own beside the service (`aladin_service.library.opening`), since it takes
all processors; the service sees each of its steps at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem
from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.manifest import live_model_folder, read_manifest
from aladin_index.format.skipped import SkippedItem, write_follow_record
from aladin_index.settings import BuildSettings, EncodeSettings
from aladin_index.sync.apply import SyncReport
from aladin_network.errors import DataError, IndexNotReadyError, InputError
from aladin_network.graphs.loading import load_for_inference
from aladin_network.photos.decoding import DEFAULT_LIMITS, ImageLimits
from aladin_network.types import Progress
from aladin_service.item_sources import image_items, photo_places
from aladin_service.library.folder_sync import FolderSettings, FolderSync
from aladin_service.library.libraries import FollowedFolders
from aladin_service.library.watching import FolderWatch
from aladin_training.data.folder_rules import FolderRules

# Photos of the first generation: enough to search in, after some seconds. The others are added
# while it is served.
FIRST_PHOTOS = 32
# Changes are written into a new generation when they are this many, and a tenth of the photos.
_LEAST_CHANGES = 2000

OnPass = Callable[[SyncReport], None]
ShowProgress = Callable[[], AbstractContextManager[Progress]]


@dataclass(frozen=True, kw_only=True)
class KeepPlan(FollowedFolders):
    """What is kept in step; can be sent to another process.

    Attributes:
        checkpoint: Model of a new index, or None if there is an index.
        limits: Limits of a photo.
        exif: Whether what photos tell of themselves becomes metadata.
        watch: Whether to go on when the first pass is done.
    """

    checkpoint: Path | None
    limits: ImageLimits = DEFAULT_LIMITS
    exif: bool = True
    watch: bool = True


def keep(
    plan: KeepPlan, show_progress: ShowProgress, on_pass: OnPass, stop: threading.Event
) -> None:
    """Build the index if there is none, and bring it into the state of the folders.

    A kill at any moment loses nothing that was added: the next call goes on from there.
    """
    readers = os.cpu_count() or 1
    try:
        generation = live_generation(plan.index)
    except IndexNotReadyError:
        with show_progress() as progress:
            generation = _first_generation(plan, progress, readers)
        # Searches are those of an index that follows folders from now on, not from the first pass.
        write_follow_record(plan.index, (), {})
    images = read_manifest(generation_folder(plan.index, generation)).images
    held = 0 if images is None else images.count
    folders = FolderSettings(
        folders=plan.folders,
        exclude=plan.exclude,
        photos_root=plan.folders,
        add=EncodeSettings(readers=readers, limits=plan.limits, exif=plan.exif),
        compact_at=max(_LEAST_CHANGES, held // 10),
    )
    checkpoint = load_for_inference(live_model_folder(plan.index))
    if plan.watch:
        watching = FolderWatch(
            plan.index,
            folders,
            checkpoint=checkpoint,
            on_pass=on_pass,
            show_progress=show_progress,
        )
        watching.run(stop)
        return
    with show_progress() as progress:
        report = FolderSync(plan.index, folders, checkpoint=checkpoint).run(progress)
    on_pass(report)


def _first_generation(plan: KeepPlan, progress: Progress, readers: int) -> int:
    """Build an index of the first photos that can be used, and return its generation."""
    assert plan.checkpoint is not None  # there is no index that has one
    settings = BuildSettings(readers=readers, limits=plan.limits, exif=plan.exif)
    reasons: list[str] = []
    for folder in plan.folders:
        places = photo_places(folder, plan.folders)
        rules = FolderRules(plan.exclude, sidecars=plan.exif)
        photos = image_items(folder, None, places=places, rules=rules)
        try:
            first = list(islice(photos, FIRST_PHOTOS))
            # The rest is read only if none of the first can be used.
            for items in (iter(first), chain(first, photos)):
                generation = _build(plan, items, settings, progress, reasons)
                if generation is not None:
                    return generation
        except DataError as error:
            reasons.append(str(error))
    raise InputError("no photo to begin with: " + "; ".join(dict.fromkeys(reasons)))


def _build(
    plan: KeepPlan,
    items: Iterable[ImageItem | SkippedItem],
    settings: BuildSettings,
    progress: Progress,
    reasons: list[str],
) -> int | None:
    """Build an index; where no photo can be used, add the reason to `reasons`."""
    assert plan.checkpoint is not None
    try:
        return build_index(plan.checkpoint, plan.index, items, None, settings, progress).generation
    except DataError:
        raise
    except InputError as error:
        reasons.append(str(error))
        return None
