"""A photo of a data set with its captions, from any source, and photos that are skipped."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from aladin_network.errors import DataError, brief, shortened
from aladin_network.photos.files import PhotoFile, printable
from aladin_network.photos.skipped import SkippedLines
from aladin_network.types import MAX_NAME_CHARS
from aladin_training.data.fields import Place
from aladin_training.data.folder_rules import FolderRules

logger = logging.getLogger(__name__)


class SkippedPhoto(NamedTuple):
    """A photo that is not used, or a part of one such as a caption; the name can be printed.

    The split is None if the source does not name it; the error None for what looks like a photo and
    is not read.
    """

    name: str
    reason: str
    split: str | None = None
    error: DataError | None = None
    is_part: bool = False


OnSkip = Callable[[SkippedPhoto], None]


def skipped_photo(uri: PurePosixPath, reason: str, split: str | None) -> SkippedPhoto:
    """Describe a file that is not read, by its path in the data set."""
    # A name in a tar may have a million characters.
    return SkippedPhoto(shortened(printable(str(uri)), MAX_NAME_CHARS), reason, split)


def unusable(error: DataError, split: str | None = None, *, is_part: bool = False) -> SkippedPhoto:
    """Describe what cannot be used by its place; see `SkippedPhoto`."""
    line = "" if error.line is None else f":{error.line}"
    return SkippedPhoto(printable(f"{error.file.name}{line}"), error.reason, split, error, is_part)


def unusable_beside(uri: PurePosixPath, error: DataError, split: str | None) -> SkippedPhoto:
    """Describe a file beside a photo that cannot be used; the photo is, without it."""
    reason = f"not used for its photo: {error.reason}"
    return skipped_photo(uri, reason, split)._replace(error=error, is_part=True)


def ignore_skipped(photo: SkippedPhoto) -> None:
    """Ignore what is not used: another pass over the source reports it."""


_STRICT: ContextVar[bool] = ContextVar("strict", default=False)


@contextmanager
def strict_data(strict: bool) -> Generator[None]:
    """Let the first element of a data set that cannot be used stop the job, inside the block."""
    token = _STRICT.set(strict or _STRICT.get())
    try:
        yield
    finally:
        _STRICT.reset(token)


def is_strict() -> bool:
    """Tell whether the first element that cannot be used stops the job; see `strict_data`."""
    return _STRICT.get()


def log_skipped(photo: SkippedPhoto) -> None:
    """Log what is not used, or raise its error in a block of `strict_data`."""
    if is_strict():
        raise photo.error or DataError(photo.name, None, photo.reason)
    logger.warning("skipped %s: %s", photo.name, photo.reason)


@dataclass(frozen=True)
class Source:
    """What one reader reads; uris are relative to `root`, `images` are a Karpathy JSON's photos.

    The rules decide what is skipped in a folder of photos as people have it; None for a data set.
    """

    path: Path
    root: Path
    on_skip: OnSkip = log_skipped
    images: Path | None = None
    rules: FolderRules | None = None

    def uri(self, path: Path) -> PurePosixPath:
        """Return the name of a file in the data set."""
        return PurePosixPath(path.relative_to(self.root.absolute()).as_posix())


class SkipLog:
    """Logs what a job does not use: the first of each kind, and then how many there were."""

    def __init__(self, source: Path) -> None:
        """Start with nothing skipped in `source`."""
        self._source = source
        self._lines = SkippedLines()
        self._photos = 0
        self._first: SkippedPhoto | None = None

    def __call__(self, photo: SkippedPhoto) -> None:
        """Log, or raise, as `log_skipped`, but a few of a kind only."""
        if is_strict():
            log_skipped(photo)
        if not photo.is_part:
            self._first = self._first or photo
            self._photos += 1
        for line in self._lines.add(photo.name, photo.reason):
            logger.warning("%s", line)

    def end(self, used: int) -> None:
        """Log the count, and refuse to go on with the smaller part of the data."""
        for line in self._lines.rest():
            logger.warning("%s", line)
        if self._first is not None and self._photos > used:
            of = f"{self._photos} of {self._photos + used} photos cannot be used, more than half"
            name, reason, _, error, _ = self._first
            reason = str(error) if error is not None else f"{name}: {reason}"
            raise DataError(self._source, None, f"{of}; the first: {reason}")


class SkippedOfSplit:
    """Forwards the skipped photos of one split, and counts them."""

    def __init__(self, split: str | None, on_skip: OnSkip) -> None:
        """Start with a count of 0."""
        self._split = split
        self._on_skip = on_skip
        self.count = 0
        self.first: SkippedPhoto | None = None

    def __call__(self, photo: SkippedPhoto) -> None:
        """Forward a skipped photo if it belongs to the split, or may belong to it."""
        of_another = self._split is not None and photo.split != self._split
        if of_another and (photo.error is None or photo.split is not None):
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


def records_digest(records: Sequence[Record]) -> str:
    """Return a digest of photos, captions and their order."""
    content = [[record.id, record.captions] for record in records]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class LocatedRecord(NamedTuple):
    """A record with the place that errors name."""

    place: Place
    record: Record


def select(
    entries: Iterable[LocatedRecord],
    source: Path,
    split: str | None,
    *,
    require_captions: bool,
    skipped: SkippedOfSplit,
) -> Iterator[LocatedRecord]:
    """Yield the photos of one split, in order."""
    known: set[str] = set()
    any_photo = any_chosen = False
    for entry in entries:
        record, any_photo = entry.record, True
        if record.split is not None:
            known.add(record.split)
        if split is not None and record.split != split:
            continue
        if require_captions and not record.captions:
            error = entry.place.error(f"photo {brief(record.uri)} has no caption")
            skipped(unusable(error, record.split))
            continue
        any_chosen = True
        yield entry
    if not any_chosen and skipped.count:
        raise DataError(source, None, f"holds no photo that can be read: {skipped.summary}")
    if not any_photo:
        raise DataError(source, None, "holds no photo")
    if not any_chosen:
        found = f"known are {sorted(known)}" if known else "it has none; expected split 'all'"
        raise DataError(source, None, f"has no split {brief(split)}, {found}")


def collect(
    entries: Iterable[LocatedRecord], on_skip: OnSkip, *, require_photos: bool = True
) -> list[Record]:
    """Collect records, except those that training could not use."""
    first: dict[str, Place] = {}
    records: list[Record] = []
    for place, record in entries:
        if record.id in first:
            before = first[record.id]
            where = before if before.file == place.file else f"{before.file}, {before}"
            error = place.error(f"id {brief(record.id)} repeats, first used at {where}")
            on_skip(unusable(error, record.split))
            continue
        # A member of a tar is known to exist: its reader has found it.
        is_file = require_photos and record.photo.length is None
        # Unlike `Path.is_file`, this does not raise for a name that no file can have.
        if is_file and not os.path.isfile(record.photo.path):  # noqa: PTH113
            on_skip(unusable(place.error(f"no such photo: {record.photo.path}"), record.split))
            continue
        first[record.id] = place
        records.append(record)
    return records
