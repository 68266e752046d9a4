"""What the name of a photo's file says of other photos: edited copies, pairs and bursts."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from aladin_network.photos.formats import PHOTO_SUFFIXES, UNREADABLE_SUFFIXES

# What Google Photos calls an edited photo, in several languages.
EDITED = re.compile(
    r"-(?:edited|effects|bearbeitet|modifi[ée]|editad[oa]|modificato|bewerkt|redigerad|redigeret|"
    r"redigert|muokattu|edytowane|upraveno|szerkesztett|editat|düzenlendi|изменено|編集済み|"
    r"已编辑|已編輯|수정됨)$",
    re.IGNORECASE,
)
# Android numbers edited copies, and Apple puts a letter before the number.
_NUMBERED = re.compile(r"~\d{1,3}$")
_APPLE = re.compile(r"^(IMG_)E(\d{4,5})$", re.IGNORECASE)
# All files of one press of the button of Google's camera begin with its time in milliseconds.
_PIXEL = re.compile(r"^(PXL_\d{8}_\d{9})(?![0-9])", re.IGNORECASE)
# IMG_20220714_101010_BURST001_COVER, 00001IMG_00001_BURST20190710101010123_COVER.
_BURST = re.compile(
    r"^(?:(?P<before>.+)_BURST\d{1,4}|\d{5}[A-Z]+_\d{5}_BURST(?P<time>\d{14,17}))(?:_COVER)?$",
    re.IGNORECASE,
)


# Also of files that another machine has read.
_SUFFIXES = PHOTO_SUFFIXES.union(UNREADABLE_SUFFIXES)


class Shot(NamedTuple):
    """What the name of a photo says of the moment that it shows.

    Attributes:
        key: The same for the photos of a folder that may belong together.
        suffix: Suffix of the file, or empty if it is not one of photos.
        is_marked: Whether the name is that of an edited copy or of one of several photos.
        is_burst: Whether it is that of a burst.
    """

    key: str
    suffix: str
    is_marked: bool = False
    is_burst: bool = False


def shot_of(name: str) -> Shot:
    """Return what the name of a photo's file, without its folder, says."""
    stem, _, last = name.rpartition(".")
    suffix = f".{last.casefold()}"
    if not stem or suffix not in _SUFFIXES:
        return Shot(name, "")
    suffix = sys.intern(suffix)
    burst = _BURST.match(stem)
    if burst:
        key = f"burst {burst['before'] or burst['time']}"
        return Shot(key.casefold(), suffix, is_marked=True, is_burst=True)
    pixel = _PIXEL.match(stem)
    key = pixel[1] if pixel else _APPLE.sub(r"\1\2", _NUMBERED.sub("", EDITED.sub("", stem)))
    return Shot(key.casefold(), suffix, is_marked=key != stem)
