"""Samples: a photo with a ``.txt`` and a ``.json`` of the same name, in a folder or in a tar.

This is the layout of img2dataset and webdataset.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, cast

from aladin_network.photos.files import PhotoFile
from aladin_training.data.fields import Place, parse_json, parse_row
from aladin_training.data.records import Record

TEXT, DETAILS = ".txt", ".json"
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

    Raises:
        DataError: If the details cannot be used.
    """
    described = parse_row(details, place)
    return Record(
        id=described.id or str(uri),
        photo=photo,
        uri=str(uri),
        captions=described.captions if captions is None else captions,
        split=described.split or split_of_folder(uri),
        metadata=described.metadata,
    )


def split_of_folder(uri: PurePosixPath) -> str | None:
    """Return the split that the top folder of a photo, or of a tar, is named after."""
    top = uri.parts[0]
    return top if top in _SPLITS and len(uri.parts) > 1 else None


def parse_details(raw: bytes, place: Place) -> dict[str, Any]:
    """Parse the ``.json`` of a sample.

    Raises:
        DataError: If it is not a JSON object.
    """
    details = parse_json(raw, place)
    if not isinstance(details, dict):
        raise place.error("expected a JSON object")
    return cast(dict[str, Any], details)


def parse_captions(raw: bytes, place: Place) -> tuple[str, ...]:
    """Parse the ``.txt`` of a sample: one caption on each line.

    Raises:
        DataError: If it is not UTF-8 text.
    """
    try:
        lines = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise place.error(f"cannot be read as UTF-8 text ({error})") from None
    return tuple(line.strip() for line in lines if line.strip())
