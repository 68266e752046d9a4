"""Ready-made regions of many photos, read one photo at a time: interfaces and common parts.

The common parts are numbers parsed from the cells of tables, fingerprints of large files, and the
matching of regions to the photos of a data set.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from aladin_network.errors import RegionError
from aladin_network.photos.regions import RegionSet
from aladin_training.data.fields import Place
from aladin_training.data.records import Record

T = TypeVar("T")

FloatArray = npt.NDArray[np.float32]

_FLOAT_BYTES = 4

_SAMPLES = 16
_SAMPLE_BYTES = 2**16

_NUMBER_AT_THE_END = re.compile(r"(\d+)$")
_SHOWN = 3


class RegionStore(Protocol):
    """The regions of many photos; `read` may be called by several threads at once.

    Attributes:
        path: Source of the regions, named in errors.
        fingerprint: Digest that changes with the content, but not with the location of the files;
            of a folder with one file for each photo, it changes with the times of these files, too.
    """

    path: Path
    fingerprint: str

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo's regions exist."""
        ...

    def __len__(self) -> int:
        """Return the number of photos."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the name of each photo, in the order of the source."""
        ...

    def read(self, key: str) -> RegionSet:
        """Read the regions of one photo; nothing else is read."""
        ...


class DetectedObjects(NamedTuple):
    """What a file says of a photo's regions besides their vectors.

    Attributes:
        labels: Class of each region; empty if the file does not record it.
        boxes: (regions, 4), x0, y0, x1, y1, or None if not every region has one; pixels if a value
            is above 1, else fractions.
        size_px: Width and height of the photo, or None if the file does not record it.
    """

    labels: tuple[str, ...] = ()
    boxes: FloatArray | None = None
    size_px: tuple[int, int] | None = None


class RawRegions(NamedTuple):
    """Regions of one photo as stored in a file, before they are checked.

    Attributes:
        place: Place that they were read from, named in errors.
        vectors: (regions, numbers) as stored.
        objects: Labels, boxes and size.
        detector: Detector that found the regions, or None if the file does not record it.
    """

    place: Place
    vectors: FloatArray
    objects: DetectedObjects = DetectedObjects()
    detector: str | None = None


@dataclass(frozen=True)
class KeyedSource(Generic[T]):
    """What a file or folder says of each photo; `read` may be called by several threads at once.

    Attributes:
        path: Path, named in errors.
        fingerprint: Digest of the content, see `RegionStore`.
        keys: Names of the photos, in the order of the source.
        read: Reads one photo that is among the keys; nothing else is read.
    """

    path: Path
    fingerprint: str
    keys: Collection[str]
    read: Callable[[str], T]


# A file format of regions, and labels of regions in a file of their own.
RegionLayout = KeyedSource[RawRegions]
RegionLabels = KeyedSource[DetectedObjects]


def decode_floats(text: str | bytes, rows: int, name: str, place: Place) -> FloatArray:
    """Decode base64 of little-endian float32 into a copy, (rows, numbers)."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise place.error(f"{name}: expected base64 ({error})") from None
    if not raw or len(raw) % (rows * _FLOAT_BYTES):
        expected = f"float32 of {rows} boxes, a multiple of {rows * _FLOAT_BYTES} bytes"
        raise place.error(f"{name}: expected {expected}, found {len(raw)} bytes")
    return np.frombuffer(raw, dtype="<f4").reshape(rows, -1).astype(np.float32)


def parse_count(value: object, name: str, place: Place) -> int:
    """Return a whole number of at least one, from a cell or from JSON."""
    if isinstance(value, bytes) and value.strip().isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        shown = value[:20] if isinstance(value, bytes | str) else value
        raise place.error(f"{name}: expected a whole number of at least 1, found {shown!r}")
    return value


def file_fingerprint(path: Path) -> str:
    """Return a digest of a file's size and of sixteen pieces, evenly spread.

    Files of regions are tens of gigabytes long: a digest of every byte would take as long as the
    work that it saves. Neither name nor date counts, so that a copy has the same fingerprint.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(f"{size}:".encode())
        last = max(0, size - _SAMPLE_BYTES)
        for number in range(_SAMPLES):
            digest.update(os.pread(file.fileno(), _SAMPLE_BYTES, last * number // (_SAMPLES - 1)))
    return digest.hexdigest()


def joint_fingerprint(*parts: str) -> str:
    """Return one digest for several fingerprints, in their order."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def region_key(record: Record, store: RegionStore) -> str:
    """Return the key of a photo's regions.

    Args:
        record: Record of the photo.
        store: Store of the regions.

    Returns:
        The first of these that the store knows: the ``cocoid`` of the metadata, the id, the uri,
        the file's name without its suffix, and the number that it ends in, with and without
        leading zeros: ``COCO_val2014_000000391895.jpg`` is 391895.

    Raises:
        RegionError: If the store knows none of them.
    """
    key = _find(record, store)
    if key is None:
        raise _missing([record], 1, store)
    return key


def region_keys(records: Iterable[Record], store: RegionStore) -> list[str]:
    """Return the keys of all photos' regions; see `region_key`.

    Raises:
        RegionError: If photos have no regions; gives their number and the first of them.
    """
    keys: list[str] = []
    missing: list[Record] = []
    count = 0
    for record in records:
        count += 1
        key = _find(record, store)
        if key is None:
            missing.append(record)
        else:
            keys.append(key)
    if missing:
        raise _missing(missing, count, store)
    return keys


def _find(record: Record, store: RegionStore) -> str | None:
    return next((name for name in _names(record) if name in store), None)


def _names(record: Record) -> Iterator[str]:
    """Yield the names that a photo's regions may have, the most reliable first."""
    cocoid = record.metadata.get("cocoid")
    if cocoid is not None:
        yield str(cocoid)
    yield record.id
    yield record.uri
    stem = PurePosixPath(record.uri).stem
    yield stem
    number = _NUMBER_AT_THE_END.search(stem)
    if number is not None:
        yield number[1]
        yield str(int(number[1]))


def _missing(missing: list[Record], count: int, store: RegionStore) -> RegionError:
    photos = ", ".join(repr(record.id) for record in missing[:_SHOWN])
    more = ", ..." if len(missing) > _SHOWN else ""
    tried = ", ".join(repr(name) for name in dict.fromkeys(_names(missing[0])))
    known = ", ".join(repr(key) for key in islice(store.keys(), _SHOWN))
    return RegionError(
        f"{store.path}: {len(missing)} of {count} photos have no regions: {photos}{more}; looked "
        f"for {tried} among {len(store)} photos such as {known}"
    )
