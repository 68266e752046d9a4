"""Files of a data set that look like photos and cannot be used, each with the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from PIL import features

from aladin.names import printable

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
