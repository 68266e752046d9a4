"""Comparison of folders with an index: which photos are new, changed, moved or gone.

A file whose size and time are those recorded is not read. One that differs is read, and its
content compared by digest; so is a new file of the same size as a recorded one, since it may be
that photo under another name. Photos of the same content share one encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os.path import lexists
from typing import Literal, NamedTuple

from aladin_index.encode.source_items import ImageItem, details_of
from aladin_index.format.skipped import SkippedItem
from aladin_index.sync.file_state import FileState, sha256_of
from aladin_index.sync.listing import FolderListing, IndexedPhoto, ListedPhoto
from aladin_network.errors import ImageError, InputError
from aladin_network.types import Progress

_REASON_ID_TAKEN = "expected an id that no other item has, got {!r} and {!r}, which both exist"


class MissingPhotosError(InputError):
    """A folder is missing or has no photo, while the index has photos of it."""


ChangeKind = Literal["added", "changed", "moved"]


class PhotoChange(NamedTuple):
    """A photo that the index is to hold in another form than now.

    Attributes:
        state: State of its file; the digest is empty if the file was not read yet.
        removes: Rows that are removed with the change: of the photo as it was, or under its old
            name.
        source: Row of an item with the same content, whose encoding is taken, or None if the photo
            is to be encoded.
    """

    kind: ChangeKind
    item: ImageItem
    state: FileState
    removes: tuple[int, ...] = ()
    source: int | None = None


@dataclass(kw_only=True)
class SyncPlan:
    """What makes an index hold exactly the photos of some folders."""

    changes: list[PhotoChange] = field(default_factory=list[PhotoChange])
    removed: list[IndexedPhoto] = field(default_factory=list[IndexedPhoto])
    recorded: dict[int, FileState] = field(default_factory=dict[int, FileState])
    unchanged: int = 0
    waiting: int = 0
    skipped: list[SkippedItem] = field(default_factory=list[SkippedItem])


def plan_sync(
    listings: Sequence[FolderListing],
    indexed: Sequence[IndexedPhoto],
    *,
    max_bytes: int,
    allow_missing: bool,
    progress: Progress,
) -> SyncPlan:
    """Compare folders with the images of an index.

    A photo that no pass has recorded is unchanged if its file has the size and the time of the
    build or the addition, and its folder says the same of it, if that was a folder. Where they are
    not recorded either, as of an import, it is changed.

    Args:
        listings: The folders, none inside another.
        indexed: All images of the index, removed ones included.
        max_bytes: Maximum size of a photo's file.
        allow_missing: Whether all photos of a folder may be gone.
        progress: Progress, started and advanced by the files that have to be read.

    Raises:
        MissingPhotosError: If all photos of a folder are gone and that is not allowed.
    """
    planner = _Planner(indexed, max_bytes, progress)
    for listing in listings:
        planner.match(listing, allow_missing=allow_missing)
    for listing in listings:
        for photo in listing.photos:
            planner.compare(photo)
        planner.plan.skipped += listing.skipped
    # What is gone and was not found under another name.
    planner.plan.removed += planner.gone.values()
    return planner.plan


class _Planner:
    """Collects a plan, see `plan_sync`."""

    def __init__(
        self,
        indexed: Sequence[IndexedPhoto],
        max_bytes: int,
        progress: Progress,
    ) -> None:
        self.plan = SyncPlan()
        self._progress = progress
        self._files_read = 0
        self._max_bytes = max_bytes
        self._by_id = {photo.id: photo for photo in indexed if photo.is_live}
        self._by_path = {photo.path: photo for photo in indexed if photo.is_live and photo.path}
        # Live items come last, so that the encoding of one is preferred to that of a removed one.
        known = sorted(indexed, key=lambda photo: photo.is_live)
        self._by_digest = {photo.state.sha256: photo for photo in known if photo.state}
        self._sizes = {photo.state.size for photo in known if photo.state}
        self._times = {photo.state[:2] for photo in known if photo.state}
        self._matched: dict[str, IndexedPhoto] = {}  # by the path of the file now
        self._rows: set[int] = set()  # of those
        self.gone: dict[int, IndexedPhoto] = {}  # by row

    def match(self, listing: FolderListing, *, allow_missing: bool) -> None:
        """Find the item of each photo of a folder, and the items whose photos are gone."""
        for photo in listing.photos:
            path = str(photo.item.path)
            item = self._by_path.get(path)
            if item is None:
                # The folder itself may have been moved, or be reached by another path.
                item = self._by_id.get(photo.item.id)
                if item is None or item.path is None or item.uri != photo.item.uri:
                    continue
                if lexists(item.path) or item.row in self._rows:
                    continue
            self._matched[path] = item
            self._rows.add(item.row)
            self.gone.pop(item.row, None)
        held = [photo for photo in self._by_id.values() if listing.holds(photo)]
        if held and not listing.photos and not allow_missing:
            raise MissingPhotosError(
                f"{listing.folder}: expected photos, found none, while the index has {len(held)} "
                "of this folder; nothing was changed. If it is not merely unmounted, "
                f"`aladin index sync INDEX {listing.folder} --allow-empty` removes them from the "
                "index"
            )
        for photo in held:
            if photo.row not in self._rows and listing.has_read(photo):
                self.gone[photo.row] = photo

    def compare(self, photo: ListedPhoto) -> None:
        """Plan what becomes of one photo of a folder."""
        item = self._matched.get(str(photo.item.path))
        state = FileState(photo.size, photo.mtime_ns, "", details_of(photo.item))
        if item is None:
            self._add(photo, state)
        elif (found := self._state_now(photo, item, state)) is not None:
            self._plan_known(photo, item, found)

    def _state_now(
        self, photo: ListedPhoto, item: IndexedPhoto, state: FileState
    ) -> FileState | None:
        """Return the state of a known photo, with the digest where the content may be the same.

        None if the photo is left for later, or its file cannot be read.
        """
        known = item.state
        if known is not None and known[:2] == state[:2]:
            return state._replace(sha256=known.sha256)
        if not photo.is_settled:
            self.plan.waiting += 1
            return None
        is_built = item.as_built is not None and item.as_built[:2] == state[:2]
        # One that is too large is as a damaged one: it is removed when it cannot be encoded.
        if photo.size > self._max_bytes or (known is None and not is_built):
            return state
        return self._with_digest(photo, state)

    def _plan_known(self, photo: ListedPhoto, item: IndexedPhoto, state: FileState) -> None:
        known, same_file = item.state, str(photo.item.path) == item.path
        if not state.sha256 or (known is not None and known.sha256 != state.sha256):
            source = self._by_digest.get(state.sha256)
            self._replace(photo, item, state, None if source is None else source.row, "changed")
        elif (
            not same_file
            or item.details not in (None, state.details)
            or (item.is_dated_by_file and known is not None and known[:2] != state[:2])
        ):
            self._replace(photo, item, state, item.row, "changed" if same_file else "moved")
        else:
            self.plan.unchanged += 1
            if known != state:
                self.plan.recorded[item.row] = state

    def _add(self, photo: ListedPhoto, state: FileState) -> None:
        # The same size and time, to the nanosecond, are those of a complete file that was moved.
        may_be_moved = (photo.size, photo.mtime_ns) in self._times
        if not (photo.is_settled or may_be_moved):
            self.plan.waiting += 1
            return
        source: IndexedPhoto | None = None
        if photo.size in self._sizes:
            found = self._with_digest(photo, state)
            if found is None:
                return
            state, source = found, self._by_digest.get(found.sha256)
        if source is None and not photo.is_settled:
            self.plan.waiting += 1
            return
        moved = source is not None and self.gone.pop(source.row, None) is not None
        removes = (source.row,) if source is not None and moved else ()
        if source is not None and moved:
            self._by_id.pop(source.id, None)
        item = self._with_free_id(photo)
        if item is not None:
            row = None if source is None else source.row
            kind = "moved" if moved else "added"
            self.plan.changes.append(PhotoChange(kind, item, state, removes, row))

    def _replace(
        self,
        photo: ListedPhoto,
        old: IndexedPhoto,
        state: FileState,
        source: int | None,
        kind: ChangeKind,
    ) -> None:
        """Plan the replacement of an item; its id stays unless the folder gives another one."""
        item = replace(photo.item, id=old.id)
        if old.details not in (None, state.details):
            self._by_id.pop(old.id, None)
            item = self._with_free_id(photo) or item
        self._by_id[item.id] = old
        self.plan.changes.append(PhotoChange(kind, item, state, (old.row,), source))

    def _with_free_id(self, photo: ListedPhoto) -> ImageItem | None:
        """Return a photo with an id that no other item has; None if there is none."""
        wanted = (photo.item.id, f"{photo.folder.name}/{photo.item.id}")
        for item_id in wanted:
            other = self._by_id.get(item_id)
            if other is None or other.row in self.gone:
                self._by_id[item_id] = IndexedPhoto(
                    -1, item_id, photo.item.uri, str(photo.item.path), None, is_live=True
                )
                return replace(photo.item, id=item_id)
        self.plan.skipped.append(SkippedItem(photo.item.id, _REASON_ID_TAKEN.format(*wanted)))
        return None

    def _with_digest(self, photo: ListedPhoto, state: FileState) -> FileState | None:
        """Read a file and return its state with the digest; None if it cannot be read."""
        if self._files_read == 0:
            self._progress.start(None, "files compared")
        self._files_read += 1
        self._progress.advance()
        try:
            return state._replace(sha256=sha256_of(photo.item.photo.read(self._max_bytes)))
        except ImageError as error:
            self.plan.skipped.append(SkippedItem(photo.item.id, error.reason))
            return None
