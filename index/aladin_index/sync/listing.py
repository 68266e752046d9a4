"""The photos of a folder as they are now, and the photos of an index as they were encoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aladin_index.encode.source_items import ImageItem
from aladin_index.format.skipped import SkippedItem
from aladin_index.search.file_collection import FileCollection
from aladin_index.sync.file_state import BuiltState, FileState
from aladin_network.photos.dates import BY_FILE
from aladin_network.photos.fields import DATE_SOURCE

_ROWS_AT_A_TIME = 4096


class ListedPhoto(NamedTuple):
    """A photo that is in a folder now.

    Attributes:
        item: The photo, with the id that the folder gives it.
        folder: Folder that was listed.
        size: Length of its file in bytes.
        mtime_ns: Time of the file's last change, in nanoseconds since 1970.
        is_settled: Whether the file is complete; False if it may still be growing.
    """

    item: ImageItem
    folder: Path
    size: int
    mtime_ns: int
    is_settled: bool = True


@dataclass(frozen=True, kw_only=True)
class FolderListing:
    """Everything that is in a folder now.

    Attributes:
        folder: The folder, an absolute path.
        photos: Its photos.
        skipped: Files that look like photos and cannot be used, with the reason.
        unread: Paths in the folder, of folders and files that could not be looked at; the index
            keeps what it has of them.
    """

    folder: Path
    photos: list[ListedPhoto] = field(default_factory=list[ListedPhoto])
    skipped: list[SkippedItem] = field(default_factory=list[SkippedItem])
    unread: list[str] = field(default_factory=list[str])

    def holds(self, photo: IndexedPhoto) -> bool:
        """Whether an indexed photo came from this folder, or from one inside or around it."""
        inside = self._inside(photo)
        return inside is not None and (photo.state is not None or inside == photo.uri)

    def has_read(self, photo: IndexedPhoto) -> bool:
        """Whether the place of an indexed photo of this folder could be looked at."""
        inside = self._inside(photo)
        return inside is not None and not any(
            inside == name or inside.startswith(f"{name}/") for name in self.unread
        )

    def _inside(self, photo: IndexedPhoto) -> str | None:
        """Return the path in the folder, or None for a photo elsewhere."""
        prefix = f"{str(self.folder).rstrip('/')}/"
        if photo.path is None or not photo.path.startswith(prefix):
            return None
        return photo.path[len(prefix) :]


class IndexedPhoto(NamedTuple):
    """An image of an index, live or removed.

    Attributes:
        path: Absolute path of its file, or None if it is not a file of its own outside the index.
        state: State of the file when it was encoded, or None if no pass has recorded it.
        is_live: False if it was removed; its encoding can still be read.
        as_built: State of the file before a build or an addition read it, or None if that is not
            recorded.
        is_dated_by_file: Whether the time of its file is the photo's date.
    """

    row: int
    id: str
    uri: str
    path: str | None
    state: FileState | None
    is_live: bool
    as_built: BuiltState | None = None
    is_dated_by_file: bool = False

    @property
    def details(self) -> str | None:
        """Digest of what its folder said when it was encoded; None if no folder did."""
        recorded = self.state or self.as_built
        return None if recorded is None else recorded.details


def indexed_photos(live: FileCollection) -> Iterator[IndexedPhoto]:
    """Yield the images of an index in row order, removed ones included.

    Args:
        live: The images at one moment.
    """
    changes = live.changes
    rows = live.entry.count if changes is None else changes.rows
    later = {} if changes is None else changes.added.file_states()
    for start in range(0, rows, _ROWS_AT_A_TIME):
        for item in live.items.by_rows(range(start, min(start + _ROWS_AT_A_TIME, rows))):
            is_file = item.length is None and item.path is not None and item.path.startswith("/")
            state = later.get(item.row, item.file_state)
            yield IndexedPhoto(
                row=item.row,
                id=item.id,
                uri=item.uri or item.id,
                path=item.path if is_file else None,
                state=FileState.parse(state),
                is_live=changes is None or changes.is_live(item.row),
                as_built=BuiltState.parse(state),
                is_dated_by_file=item.metadata.get(DATE_SOURCE) == BY_FILE,
            )
