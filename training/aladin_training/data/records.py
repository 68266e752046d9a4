"""A photo of a data set with its captions, from any source, and photos that are skipped."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from aladin_network.errors import DataError
from aladin_network.photos.files import PhotoFile, printable
from aladin_training.data.fields import Place

logger = logging.getLogger(__name__)


class SkippedPhoto(NamedTuple):
    """A file that looks like a photo and is not read.

    Attributes:
        name: Path in the data set, escaped so that it can be printed and stored.
        reason: Reason in words, without a path.
        split: Split that the photo would belong to, or None if the source does not name it.
    """

    name: str
    reason: str
    split: str | None = None


OnSkip = Callable[[SkippedPhoto], None]


def skipped_photo(uri: PurePosixPath, reason: str, split: str | None) -> SkippedPhoto:
    """Describe a file that is not read, by its path in the data set."""
    return SkippedPhoto(printable(str(uri)), reason, split)


def ignore_skipped(photo: SkippedPhoto) -> None:
    """Ignore a file that is not read: another pass over the source reports it."""


def log_skipped(photo: SkippedPhoto) -> None:
    """Log a file that is not read as a warning."""
    logger.warning("skipped: %s: %s", photo.name, photo.reason)


class SkippedOfSplit:
    """Forwards the skipped photos of one split, and counts them.

    Attributes:
        count: Number of forwarded photos.
        first: First forwarded photo, or None.
    """

    def __init__(self, split: str | None, on_skip: OnSkip) -> None:
        """Start with a count of 0.

        Args:
            split: Split that is read, or None for all photos.
            on_skip: Called with each skipped photo of that split.
        """
        self._split = split
        self._on_skip = on_skip
        self.count = 0
        self.first: SkippedPhoto | None = None

    def __call__(self, photo: SkippedPhoto) -> None:
        """Forward a skipped photo if it belongs to the split."""
        if self._split is not None and photo.split != self._split:
            return
        self.count += 1
        self.first = self.first or photo
        self._on_skip(photo)

    @property
    def summary(self) -> str:
        """Number of skipped photos with an example, or an empty text if there are none."""
        if self.first is None:
            return ""
        return f"{self.count} skipped, e.g. {self.first.name}: {self.first.reason}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A photo with its captions and metadata.

    Attributes:
        id: Unique id in its source; the user's own, or else `uri`.
        photo: Location of its bytes, with an absolute path.
        uri: Name of the photo in the source.
        captions: Any number of captions; may be empty if captions are not required.
        split: Split, or None if the source does not name it.
        metadata: The user's own metadata, passed on unchanged.
        text_ids: Id of each caption, or empty if the source names none.
    """

    id: str
    photo: PhotoFile
    uri: str
    captions: tuple[str, ...]
    split: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    text_ids: tuple[str, ...] = ()

    @property
    def caption_ids(self) -> list[str]:
        """Ids of the captions as items of their own, for example in an index of texts."""
        if self.text_ids:
            return list(self.text_ids)
        return [f"{self.id}#{number}" for number in range(len(self.captions))]


@dataclass(frozen=True, kw_only=True)
class DocumentRecord:
    """A text with the queries that it answers, for a network for texts alone.

    Attributes:
        id: Unique id in its source.
        document: The text.
        captions: The queries, at least one.
    """

    id: str
    document: str
    captions: tuple[str, ...]


def records_digest(records: Sequence[Record | DocumentRecord]) -> str:
    """Return a digest of photos, captions and their order."""
    ids = [record.id for record in records]
    captions = [caption for record in records for caption in record.captions]
    # Interrupted runs of earlier versions recorded the rows of each photo's captions, too.
    ends = itertools.accumulate(len(record.captions) for record in records)
    rows = [
        list(range(end - len(record.captions), end))
        for record, end in zip(records, ends, strict=True)
    ]
    return hashlib.sha256(json.dumps([ids, captions, rows]).encode()).hexdigest()


class LocatedRecord(NamedTuple):
    """A record with the place that it was read from.

    Attributes:
        place: Place of the record, named in errors.
        record: The record.
    """

    place: Place
    record: Record


def select(
    entries: Iterable[LocatedRecord],
    source: Path,
    split: str | None,
    *,
    require_captions: bool,
    skipped: SkippedOfSplit | None = None,
) -> Iterator[LocatedRecord]:
    """Yield the photos of one split, in order.

    Args:
        entries: Output of a reader.
        source: Source, named in the error if it has no such photos.
        split: Split to yield, or None for all photos.
        require_captions: Refuse a photo without captions.
        skipped: Photos that the reader could not read; reported if there was no other.

    Raises:
        DataError: If a photo of the split has no caption, or at the end, if there was no photo.
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
        found = f"known are {sorted(known)}" if known else "it has none; use --split all"
        raise DataError(source, None, f"has no split {split!r}, {found}")


def collect(entries: Iterable[LocatedRecord], *, require_photos: bool = True) -> list[Record]:
    """Collect records, refusing those that training could not use.

    Args:
        entries: Output of a reader.
        require_photos: Refuse a photo whose file is missing.

    Raises:
        DataError: If an id repeats, or the file of a photo is missing.
    """
    first: dict[str, Place] = {}
    records: list[Record] = []
    for place, record in entries:
        if record.id in first:
            before = first[record.id]
            where = before if before.file == place.file else f"{before.file}, {before}"
            raise place.error(f"id {record.id!r} repeats, first used at {where}")
        # A member of a tar is known to exist: its reader has found it.
        is_file = require_photos and record.photo.length is None
        if is_file and not record.photo.path.is_file():
            raise place.error(f"no such photo: {record.photo.path}")
        first[record.id] = place
        records.append(record)
    return records
