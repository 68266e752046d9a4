"""One photo of a data set with its captions, whatever it was read from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aladin.errors import DataError
from aladin.photo_file import PhotoFile
from training.data.fields import Place
from training.data.skipped import SkippedOfSplit


@dataclass(frozen=True, kw_only=True)
class Record:
    """A photo and what is known of it.

    Attributes:
        id: unique in its source; the user's own, else `uri`.
        photo: where its bytes are; with an absolute path.
        uri: the photo as the source names it.
        captions: any number; none where captions are not required.
        split: None if the source does not say.
        metadata: the user's own, handed through.
    """

    id: str
    photo: PhotoFile
    uri: str
    captions: tuple[str, ...]
    split: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def caption_ids(self) -> list[str]:
        """Ids of the captions where they are items of their own, as among an index's texts."""
        return [f"{self.id}#{number}" for number in range(len(self.captions))]


class Entry(NamedTuple):
    """What a reader yields.

    Attributes:
        place: that the record was read from; named in errors about it.
        record: the photo.
    """

    place: Place
    record: Record


def select(
    entries: Iterable[Entry],
    source: Path,
    split: str | None,
    *,
    require_captions: bool,
    skipped: SkippedOfSplit | None = None,
) -> Iterator[Entry]:
    """Pass on the photos of one split as they come.

    Args:
        entries: of a reader.
        source: named in the error about a source without such photos.
        split: only this one; None: all photos.
        require_captions: refuse a photo without captions.
        skipped: photos that the reader could not read; named where there was no other.

    Raises:
        DataError: a photo of the split has no caption; or, at the end, there was none.
    """
    known: set[str] = set()
    any_photo = any_chosen = False
    for entry in entries:
        record, any_photo = entry.record, True
        if record.split is not None:
            known.add(record.split)
        if split is not None and record.split != split:
            continue
        if require_captions and not record.captions:
            raise entry.place.error(f"photo {record.uri!r} has no caption")
        any_chosen = True
        yield entry
    if not any_chosen and skipped is not None and skipped.count:
        raise DataError(source, None, f"holds no photo that can be read: {skipped.summary}")
    if not any_photo:
        raise DataError(source, None, "holds no photo")
    if not any_chosen:
        raise DataError(source, None, f"has no split {split!r}, known are {sorted(known)}")


def collect(entries: Iterable[Entry], *, require_photos: bool = True) -> list[Record]:
    """Gather records, refusing those that training could not use.

    Args:
        entries: of a reader.
        require_photos: refuse a photo whose file is missing.

    Raises:
        DataError: an id repeats, or the file of a photo is missing.
    """
    first: dict[str, Place] = {}
    records: list[Record] = []
    for place, record in entries:
        if record.id in first:
            before = first[record.id]
            where = before if before.file == place.file else f"{before.file}, {before}"
            raise place.error(f"id {record.id!r} repeats, first used at {where}")
        # A member of a tar is there: its reader has seen it.
        is_file = require_photos and record.photo.length is None
        if is_file and not record.photo.path.is_file():
            raise place.error(f"no such photo: {record.photo.path}")
        first[record.id] = place
        records.append(record)
    return records
