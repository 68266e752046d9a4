"""Passes over folders of photos, after each of which a live index holds exactly their photos."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from aladin_index.changes.writer import ChangesWriter, OtherGenerationError
from aladin_index.encode.region_sources import check_regions
from aladin_index.encode.source_items import PhotoPlaces
from aladin_index.format.manifest import live_model_folder
from aladin_index.format.skipped import FOLLOWED, SkippedItem, write_follow_record
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.reader import open_index
from aladin_index.settings import EncodeSettings
from aladin_index.sync.apply import PlanApplier, SyncReport
from aladin_index.sync.listing import FolderListing, ListedPhoto, indexed_photos
from aladin_index.sync.plan import MissingPhotosError, plan_sync
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.detectors.base import Detector
from aladin_network.errors import DataError, InputError
from aladin_network.graphs.loading import load_for_inference
from aladin_network.types import NullProgress, Progress
from aladin_service.item_sources import photo_item
from aladin_training.data.folder import UNREADABLE_FOLDER, read_folder
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.records import Record, SkippedPhoto, Source

_LOG = logging.getLogger(__name__)

# A pass is planned anew if other processes have changed the index meanwhile.
_MOST_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class FolderSettings:
    """Folders of an index, and how they are read.

    Attributes:
        folders: The folders; none inside another.
        exclude: Patterns of what is skipped, see `FolderRules`.
        photos_root: Folder that all photos have to be in; the followed folders, out of which no
            link may lead; or None.
        add: How photos are read and encoded.
        allow_missing: Whether all photos of a folder may be removed from the index, because the
            folder is empty or gone.
        compact_at: Number of changes of the images from which a new generation is written, or None
            for never.
        most_encoded: Number of photos after which a pass ends, so that others' changes need not
            wait for many new photos, or None for no limit.
    """

    folders: Sequence[Path]
    exclude: tuple[str, ...] = ()
    photos_root: Path | Sequence[Path] | None = None
    add: EncodeSettings = field(default_factory=EncodeSettings)
    allow_missing: bool = False
    compact_at: int | None = 20_000
    most_encoded: int | None = None

    def __post_init__(self) -> None:
        """Check the folders."""
        if not self.folders:
            raise InputError("expected at least one folder of photos, got none")
        places = [Path(os.path.realpath(folder)) for folder in self.folders]
        for number, place in enumerate(places):
            for other, around in enumerate(places):
                if other != number and place.is_relative_to(around):
                    raise InputError(
                        f"expected folders of which none is inside another, got "
                        f"{self.folders[number]} in {self.folders[other]}"
                    )


class FolderSync:
    """Brings an index into the state of folders, pass by pass; the network is loaded once.

    Attributes:
        warnings: What the last pass skipped without naming each file, and photos outside of
            their folder.
    """

    def __init__(
        self,
        index: Path,
        settings: FolderSettings,
        *,
        checkpoint: Checkpoint | None = None,
        detector: Detector | None = None,
        is_settled: Callable[[Path, int, int], bool] = lambda path, size, mtime_ns: True,  # noqa: ARG005
    ) -> None:
        """Store the arguments; nothing is opened yet."""
        self.warnings: list[str] = []
        self._index = index
        self._settings = settings
        self._checkpoint = checkpoint
        self._detector = detector
        self._is_settled = is_settled
        # Files that are no photos, with their size and time: they are not read again in each pass.
        self._unusable: dict[Path, tuple[int, int, str]] = {}

    def forget_unusable(self) -> None:
        """Read files again that were no photos, although they look the same."""
        self._unusable.clear()

    def run(
        self,
        progress: Progress | None = None,
        *,
        dry_run: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> SyncReport:
        """Make one pass."""
        progress = progress or NullProgress()
        if self._checkpoint is None:
            self._checkpoint = load_for_inference(live_model_folder(self._index))
        check_regions(self._checkpoint.model, self._detector)
        report = SyncReport()
        for attempt in range(_MOST_ATTEMPTS):
            with suppress(OtherGenerationError) if attempt < _MOST_ATTEMPTS - 1 else nullcontext():
                self._pass(self._checkpoint, report, progress, is_stopped, dry_run=dry_run)
                if not report.conflicts or is_stopped():
                    break
        for change, skipped in report.unusable:
            state = change.state
            self._unusable[change.item.path] = (state.size, state.mtime_ns, skipped.reason)
        if not dry_run:
            self._finish(report, progress, is_stopped)
        return report

    def _finish(
        self, report: SyncReport, progress: Progress, is_stopped: Callable[[], bool]
    ) -> None:
        """Write a new generation if there are many changes, and record what was skipped."""
        if report.has_changes and not is_stopped():
            self._compact(progress)
        if not report.conflicts:
            self._record(report)

    def _record(self, report: SyncReport) -> None:
        try:
            write_follow_record(self._index, report.skipped, report.other_files)
        except OSError as error:  # what was added and removed is in the index
            _LOG.warning("%s: cannot be written (%s)", self._index / FOLLOWED, error.strerror)

    def _pass(
        self,
        checkpoint: Checkpoint,
        report: SyncReport,
        progress: Progress,
        is_stopped: Callable[[], bool],
        *,
        dry_run: bool,
    ) -> None:
        settings = self._settings
        self.warnings.clear()
        for of_attempt in (report.conflicts, report.skipped, report.other_files):
            of_attempt.clear()
        listings = [self._list(folder, report.other_files) for folder in settings.folders]
        with open_index(self._index, checkpoint=checkpoint) as index:
            live = index.collection("images")
            indexed = list(indexed_photos(live))
            plan = plan_sync(
                listings,
                indexed,
                max_bytes=settings.add.limits.max_bytes,
                allow_missing=settings.allow_missing,
                progress=progress,
            )
            # What an earlier attempt has applied may be gone with its generation.
            here = {photo.id for photo in indexed if photo.is_live}
            report.keep_applied(here, {change.item.id for change in plan.changes})
            report.unchanged = plan.unchanged - report.indexed
            report.waiting = plan.waiting
            report.skipped += plan.skipped
            if dry_run:
                for change in plan.changes:
                    report.of(change.kind).append(change.item.id)
                report.deleted += [photo.id for photo in plan.removed]
                return
            if not (plan.changes or plan.removed or plan.recorded):
                return
            with closing(ChangesWriter(self._index, checkpoint.model_id)) as writer:
                applier = PlanApplier(
                    writer,
                    index,
                    report,
                    settings.add,
                    detector=self._detector,
                    most_encoded=settings.most_encoded,
                    is_stopped=is_stopped,
                )
                applier.apply(plan, live, progress)

    def _list(self, folder: Path, other_files: dict[str, int]) -> FolderListing:
        """List a folder; a missing one is an empty one if that is allowed."""
        settings = self._settings
        folder = folder.absolute()
        found = _found_at(folder)
        if found == "nothing" and settings.allow_missing:
            return FolderListing(folder=folder)
        if found != "a folder":
            raise MissingPhotosError(
                f"{folder}: expected a folder of photos, found {found}; nothing was changed"
            )
        rules = FolderRules(settings.exclude, sidecars=settings.add.exif)
        places = PhotoPlaces(folder, settings.photos_root)
        listing = FolderListing(folder=folder)
        reading = _FolderReading(listing, places, self._unusable, self._is_settled)
        try:
            for _, record in read_folder(Source(folder, folder, reading.skip, rules=rules)):
                reading.take(record)
        except DataError as error:
            raise MissingPhotosError(f"{error}; nothing was changed") from error
        for kind, count in rules.kinds.items():
            other_files[kind] = other_files.get(kind, 0) + count
        if rules.summary is not None:
            self.warnings.append(f"not looked at: {rules.summary}")
        if places.warning is not None:
            self.warnings.append(f"warning: {places.warning}")
        return listing

    def _compact(self, progress: Progress) -> None:
        """Write a new generation if there are many changes."""
        limit = self._settings.compact_at
        if limit is None:
            return
        changes = pending_changes(self._index).get("images")
        if changes is None or sum(changes) < limit:
            return
        try:
            compact_index(self._index, progress=progress)
        except InputError:  # no item is left in a collection, and a generation needs one
            return


@dataclass(frozen=True)
class _FolderReading:
    """One reading of a folder, which fills a listing."""

    listing: FolderListing
    places: PhotoPlaces
    unusable: Mapping[Path, tuple[int, int, str]]
    is_settled: Callable[[Path, int, int], bool]

    def skip(self, photo: SkippedPhoto) -> None:
        """Note a photo that the reader of the folder skips."""
        self.listing.skipped.append(SkippedItem(photo.name, photo.reason))
        if photo.reason.startswith(UNREADABLE_FOLDER):
            self.listing.unread.append(photo.name)

    def take(self, record: Record) -> None:
        """Note a photo of the folder, unless it cannot be used."""
        path = record.photo.path
        if record.photo.length is not None:
            raise InputError(
                f"{self.listing.folder}: expected a folder of photos, found the tar {path.name}; "
                "`aladin index add` reads tars"
            )
        reason = self.places.fault(path, record.uri)
        state = self._state(record) if reason is None else None
        if state is not None:
            size, mtime_ns, reason = self.unusable.get(path, (-1, -1, ""))
            if (size, mtime_ns) != state:
                item = photo_item(record, None, self.skip, of_folder=True)
                settled = self.is_settled(path, *state)
                self.listing.photos.append(ListedPhoto(item, self.listing.folder, *state, settled))
                return
        if reason is not None:
            self.listing.skipped.append(SkippedItem(record.id, reason))

    def _state(self, record: Record) -> tuple[int, int] | None:
        """Return the size and the time of a photo's file; None if it cannot be looked at."""
        path = record.photo.path
        try:
            state = path.stat()
        except FileNotFoundError:
            return None  # removed since its folder was listed
        except OSError as error:
            self.listing.skipped.append(SkippedItem(record.id, error.strerror or "cannot be read"))
            self.listing.unread.append(str(PurePosixPath(path.relative_to(self.listing.folder))))
            return None
        return state.st_size, state.st_mtime_ns


def _found_at(path: Path) -> Literal["a folder", "a file", "nothing"]:
    """Return what is at a path."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError as error:
        raise MissingPhotosError(f"{path}: {error.strerror}; nothing was changed") from error
    return "a folder" if stat.S_ISDIR(mode) else "a file"
