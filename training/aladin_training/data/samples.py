"""Samples: a photo with a ``.txt`` and a ``.json`` of the same name, in a folder or in a tar.

This is the layout of img2dataset and webdataset. Other programs write such files into folders of
photos, too: there a photo is identified by its path alone, and only fields named as captions are
captions. A title is often the name of the file, and an id that of an album or a post.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from aladin_network.errors import DataError
from aladin_network.photos.fields import over
from aladin_network.photos.files import PhotoFile, name_fault
from aladin_network.types import MAX_STORED_BYTES
from aladin_training.data.fields import Place, Row, download_failed, parse_json
from aladin_training.data.records import (
    LocatedRecord,
    OnSkip,
    Record,
    skipped_photo,
    unusable_beside,
)

TEXT, DETAILS = ".txt", ".json"
# A field that all files of Google Takeout have.
TAKEN = "photoTakenTime"
_OWN_CAPTIONS = ("captions", "caption")
# A line of the labels of a detector, as of YOLO: a class and the numbers of a box.
_LABEL = re.compile(r"\s*\d+(\s+-?[\d.]+(e-?\d+)?){4,}\s*")
_SPLITS = frozenset({"train", "val", "test"})


def is_hidden(name: PurePosixPath) -> bool:
    """Tell whether a name belongs to the operating system, such as ``._a.jpg`` of a Mac."""
    return any((part.startswith(".") and part != "..") or part == "__MACOSX" for part in name.parts)


class SideFile(NamedTuple):
    """A file beside a photo, which is read only if it is a ``.txt`` or a ``.json``."""

    uri: PurePosixPath
    place: Place
    read: Callable[[], bytes]


class Beside(NamedTuple):
    """What the ``.txt`` and the ``.json`` beside a photo say; None without such a file.

    `told` is what other programs' files say, see `aladin_training.data.sidecars`.
    """

    captions: tuple[str, ...] | None
    details: Mapping[str, Any] | None
    told: Mapping[str, Any] = MappingProxyType({})


def read_beside(files: Iterable[SideFile], on_skip: OnSkip) -> Beside:
    """Parse the files beside a photo; those that cannot be used are skipped."""
    found: dict[str, Any] = {}
    for file in files:
        parse = _PARSERS.get(suffix := file.uri.suffix.lower())
        if parse is not None:
            try:
                found[suffix] = parse(file.read(), file.place)
            except DataError as error:
                on_skip(unusable_beside(file.uri, error, split_of_folder(file.uri)))
    return Beside(found.get(TEXT), found.get(DETAILS))


class Photo(NamedTuple):
    """A photo of a folder or of a tar, whose details may have an id and a title.

    A top folder ``train``, ``val`` or ``test`` is its split, unless the details have one.
    """

    uri: PurePosixPath
    file: PhotoFile
    place: Place
    in_tar: bool


def sample_entries(photo: Photo, beside: Beside, on_skip: OnSkip) -> Iterator[LocatedRecord]:
    """Yield the record of a photo, unless its name can be no id; details of no use are skipped."""
    if download_failed(beside.details or {}):
        return
    try:
        record = _record(photo, beside)
    except DataError as error:
        details = photo.uri.with_suffix(DETAILS)
        on_skip(unusable_beside(details, error, split_of_folder(photo.uri)))
        record = _record(photo, beside._replace(details=None))
    fault = name_fault(record.id) or _path_fault(photo.file.path)
    if fault is None:
        yield LocatedRecord(photo.place, record)
    else:
        on_skip(skipped_photo(photo.uri, fault, split_of_folder(photo.uri)))


def _record(photo: Photo, beside: Beside) -> Record:
    known = {} if photo.in_tar else {"ids": (), "captions": _OWN_CAPTIONS}
    row = Row(beside.details or {}, photo.place, **known)
    own_id, captions = row.id, row.captions
    return Record(
        id=own_id or str(photo.uri),
        photo=photo.file,
        uri=str(photo.uri),
        captions=captions if beside.captions is None else beside.captions,
        split=row.split or split_of_folder(photo.uri),
        metadata=over(row.metadata(), beside.told),
    )


def _path_fault(path: Path) -> str | None:
    """Return why the path of a photo cannot be stored, although its id can."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return name_fault(str(path))
    return None


def check_side_file(size: int, place: Place, most: int = MAX_STORED_BYTES) -> None:
    """Refuse a file beside a photo before it is read, if it is too large to be about one photo."""
    if size > most:
        raise place.error(f"{size} bytes, at most {most} are read beside a photo")


def split_of_folder(uri: PurePosixPath) -> str | None:
    """Return the split that the top folder of a photo, or of a tar, is named after."""
    top = uri.parts[0]
    return top if top in _SPLITS and len(uri.parts) > 1 else None


def _parse_details(raw: bytes, place: Place) -> dict[str, Any]:
    """Parse the ``.json`` of a sample; one of Google Takeout is none."""
    details = parse_json(raw, place)
    if not isinstance(details, dict):
        raise place.error("expected a JSON object")
    return {} if TAKEN in details else cast(dict[str, Any], details)


def _parse_captions(raw: bytes, place: Place) -> tuple[str, ...]:
    """Parse the ``.txt`` of a sample: one caption on each line; labels of a detector are none."""
    try:
        lines = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise place.error(f"cannot be read as UTF-8 text ({error})") from None
    captions = tuple(line.strip() for line in lines if line.strip())
    return () if all(map(_LABEL.fullmatch, captions)) else captions


_PARSERS: Mapping[str, Callable[[bytes, Place], Any]] = {
    TEXT: _parse_captions,
    DETAILS: _parse_details,
}
