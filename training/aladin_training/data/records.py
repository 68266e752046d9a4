"""Files of a data set that look like photos and cannot be used, each with the reason.

One photo of a data set with its captions, whatever it was read from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from PIL import features

from aladin_network.errors import DataError
from aladin_network.photos.files import PhotoFile, printable
from aladin_training.data.fields import Place

logger = logging.getLogger(__name__)

_RAW = "camera RAW cannot be read; export the photo as JPEG"
_HEIC = "HEIC cannot be read; convert the photo to JPEG"
_RAW_SUFFIXES = (
    ".3fr .arw .cr2 .cr3 .crw .dcr .dng .erf .fff .iiq .kdc .mef .mos .mrw .nef .nrw .orf .pef "
    ".raf .rw2 .rwl .sr2 .srf .srw .x3f"
)

HAS_AVIF = bool(features.check("avif"))

# Photos in a format that is not decoded, by their suffix, with the reason.
UNREADABLE_SUFFIXES: Mapping[str, str] = {
    **dict.fromkeys(_RAW_SUFFIXES.split(), _RAW),
    **dict.fromkeys((".heic", ".heif", ".heics", ".heifs", ".hif"), _HEIC),
    **dict.fromkeys((".jp2", ".j2k", ".jpf", ".jpx"), "JPEG 2000 cannot be read"),
    **dict.fromkeys((".jxr", ".wdp"), "JPEG XR cannot be read"),
    ".jxl": "JPEG XL cannot be read",
    **({} if HAS_AVIF else {".avif": "AVIF cannot be read by the installed Pillow"}),
}


class SkippedPhoto(NamedTuple):
    """A file that looks like a photo and is not read.

    Attributes:
        name: path in the data set, escaped so that it can be printed and stored.
        reason: in words; without a path.
        split: that the photo would belong to, or None if the source does not say.
    """

    name: str
    reason: str
    split: str | None = None


OnSkip = Callable[[SkippedPhoto], None]


def skipped_photo(uri: PurePosixPath, reason: str, split: str | None) -> SkippedPhoto:
    """Describe a file that is not read; `uri` is its path in the data set."""
    return SkippedPhoto(printable(str(uri)), reason, split)


def ignore_skipped(photo: SkippedPhoto) -> None:
    """Take no notice: another reading of the same source reports the file."""


def log_skipped(photo: SkippedPhoto) -> None:
    """Log a file that is not read as a warning."""
    logger.warning("left out: %s: %s", photo.name, photo.reason)


class SkippedOfSplit:
    """Passes on the skipped photos of one split, and counts them.

    Attributes:
        count: number of photos passed on.
        first: the first of them, or None.
    """

    def __init__(self, split: str | None, on_skip: OnSkip) -> None:
        """Pass on nothing yet.

        Args:
            split: the split that is read, or None for all photos.
            on_skip: called with each skipped photo of that split.
        """
        self._split = split
        self._on_skip = on_skip
        self.count = 0
        self.first: SkippedPhoto | None = None

    def __call__(self, photo: SkippedPhoto) -> None:
        """Take a skipped photo of the source."""
        if self._split is not None and photo.split != self._split:
            return
        self.count += 1
        self.first = self.first or photo
        self._on_skip(photo)

    @property
    def summary(self) -> str:
        """How many photos were skipped, and an example; empty if there are none."""
        if self.first is None:
            return ""
        return f"{self.count} left out, e.g. {self.first.name}: {self.first.reason}"


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


class LocatedRecord(NamedTuple):
    """What a reader yields.

    Attributes:
        place: that the record was read from; named in errors about it.
        record: the photo.
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


def collect(entries: Iterable[LocatedRecord], *, require_photos: bool = True) -> list[Record]:
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
