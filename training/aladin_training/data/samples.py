"""Samples: a photo with a ``.txt`` and a ``.json`` of the same name, in a folder or in a tar.

This is the layout of img2dataset and webdataset. Other programs write such files into folders of
photos, too: there a photo is identified by its path alone, and only fields named as captions are
captions. A title is often the name of the file, and an id that of an album or a post.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, cast

from aladin_network.photos.files import PhotoFile
from aladin_network.types import MAX_STORED_BYTES
from aladin_training.data.fields import Place, parse_json, parse_row
from aladin_training.data.records import Record

TEXT, DETAILS = ".txt", ".json"
_OWN_CAPTIONS = ("captions", "caption")
# A field that all files of Google Takeout have. Their people and places are not for everybody who
# may search.
_TAKEOUT = "photoTakenTime"
# A line of the labels of a detector, as of YOLO: a class and the numbers of a box.
_LABEL = re.compile(r"\s*\d+(\s+-?[\d.]+(e-?\d+)?){4,}\s*")
_SPLITS = frozenset({"train", "val", "test"})


def is_hidden(name: PurePosixPath) -> bool:
    """Tell whether a name belongs to the operating system, such as ``._a.jpg`` of a Mac."""
    return any((part.startswith(".") and part != "..") or part == "__MACOSX" for part in name.parts)


def sample_record(
    uri: PurePosixPath,
    photo: PhotoFile,
    captions: tuple[str, ...] | None,
    details: Mapping[str, Any],
    place: Place,
    *,
    in_tar: bool,
) -> Record:
    """Combine a photo with the files beside it.

    Args:
        uri: Name of the photo relative to the source; a top folder ``train``, ``val`` or ``test``
            is its split, unless `details` has one.
        photo: Location of its bytes.
        captions: Captions of the ``.txt``, which replace those of `details`, or None without a
            file.
        details: Fields of the ``.json``, or of a row in its place.
        place: Place of the sample, named in errors.
        in_tar: Whether it is a sample of a data set, whose details may have an id and a title.

    Raises:
        DataError: If the details cannot be used.
    """
    described = (
        parse_row(details, place)
        if in_tar
        else parse_row(details, place, ids=(), captions=_OWN_CAPTIONS)
    )
    return Record(
        id=described.id or str(uri),
        photo=photo,
        uri=str(uri),
        captions=described.captions if captions is None else captions,
        split=described.split or split_of_folder(uri),
        metadata=described.metadata,
    )


def check_side_file(size: int, place: Place) -> None:
    """Refuse a file beside a photo before it is read, if it is too large to be about one photo.

    Args:
        size: Length of the file in bytes.
        place: Place of the file, named in the error.

    Raises:
        DataError: If it is larger than what is stored of a photo.
    """
    if size > MAX_STORED_BYTES:
        raise place.error(f"{size} bytes, at most {MAX_STORED_BYTES} are read beside a photo")


def split_of_folder(uri: PurePosixPath) -> str | None:
    """Return the split that the top folder of a photo, or of a tar, is named after."""
    top = uri.parts[0]
    return top if top in _SPLITS and len(uri.parts) > 1 else None


def parse_details(raw: bytes, place: Place) -> dict[str, Any]:
    """Parse the ``.json`` of a sample; of one of Google Takeout nothing is taken.

    Raises:
        DataError: If it is not a JSON object.
    """
    details = parse_json(raw, place)
    if not isinstance(details, dict):
        raise place.error("expected a JSON object")
    return {} if _TAKEOUT in details else cast(dict[str, Any], details)


def parse_captions(raw: bytes, place: Place) -> tuple[str, ...]:
    """Parse the ``.txt`` of a sample: one caption on each line; labels of a detector are none.

    Raises:
        DataError: If it is not UTF-8 text.
    """
    try:
        lines = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise place.error(f"cannot be read as UTF-8 text ({error})") from None
    captions = tuple(line.strip() for line in lines if line.strip())
    return () if all(map(_LABEL.fullmatch, captions)) else captions
