"""Ready-made regions of many photos, read and checked one photo at a time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from aladin_network.errors import DataError, RegionError, brief
from aladin_network.photos.regions import GEOMETRY, RegionSet
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

    The fingerprint changes with the content, not with the place of the files; of a file for each
    photo, with their times, too.
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

    Boxes are (regions, 4), x0, y0, x1, y1: pixels if a value is above 1, else fractions.
    """

    labels: tuple[str, ...] = ()
    boxes: FloatArray | None = None
    size_px: tuple[int, int] | None = None


class RawRegions(NamedTuple):
    """Regions of one photo as stored in a file, before they are checked."""

    place: Place
    vectors: FloatArray
    objects: DetectedObjects = DetectedObjects()
    detector: str | None = None


@dataclass(frozen=True)
class KeyedSource(Generic[T]):
    """What a file or folder says of each photo; `read` may be called by several threads at once."""

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
    """Return a digest of a file's size and of sixteen pieces: all of it would take too long."""
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

    It is the first of these that the store knows: the ``cocoid`` of the metadata, the id, the uri,
    the file's name without its suffix, and the number that it ends in, with and without leading
    zeros: ``COCO_val2014_000000391895.jpg`` is 391895.
    """
    key = _find(record, store)
    if key is None:
        raise _missing([record], 1, store)
    return key


def region_keys(records: Iterable[Record], store: RegionStore) -> list[str]:
    """Return the keys of all photos' regions; one error names those without."""
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


# Tolerance for rounded boxes, in fractions of the photo.
_SLACK = 1e-3


class CheckedRegions:
    """The regions of one source; those of each photo are checked on reading. See `RegionStore`.

    All vectors have the size of the first photo's. If only the vectors have boxes, which end in
    them as VinVL's do (x0, y0, x1, y1, width and height in fractions), they are taken from there.
    """

    def __init__(self, layout: RegionLayout, labels: RegionLabels | None = None) -> None:
        """Check the first photo."""
        self.path = layout.path
        self._layout = layout
        self._labels = labels
        self._keys = [key for key in layout.keys if labels is None or key in labels.keys]
        if not self._keys:
            raise _nothing(layout, labels)
        self.fingerprint = joint_fingerprint(
            layout.fingerprint, *([] if labels is None else [labels.fingerprint])
        )
        first = self._raw(self._keys[0])
        self._numbers = first.vectors.shape[-1] if first.vectors.ndim else 0
        self._ends_in_boxes = first.objects.boxes is None and _last_boxes(first.vectors) is not None
        self.read(self._keys[0])

    def __contains__(self, key: object) -> bool:
        """Tell whether a photo's regions exist, with their labels if these are in another file."""
        return key in self._layout.keys and (self._labels is None or key in self._labels.keys)

    def __len__(self) -> int:
        """Return the number of photos."""
        return len(self._keys)

    def keys(self) -> Iterator[str]:
        """Return the name of each photo."""
        return iter(self._keys)

    def read(self, key: str) -> RegionSet:
        """Read and check the regions of one photo."""
        if key not in self:
            raise DataError(self.path, None, f"no regions of a photo {brief(key)}")
        raw = self._raw(key)
        if raw.vectors.ndim != 2 or raw.vectors.shape[1] != self._numbers or not len(raw.vectors):
            expected = f"vectors of shape (regions, {self._numbers}), as of the first photo"
            raise raw.place.error(f"expected {expected}, found {raw.vectors.shape}")
        try:
            return RegionSet(
                raw.vectors,
                self._boxes(raw),
                raw.objects.labels,
                raw.objects.size_px,
                raw.detector,
            )
        except RegionError as error:
            raise raw.place.error(str(error)) from None

    def _boxes(self, raw: RawRegions) -> FloatArray | None:
        if raw.objects.boxes is not None or not self._ends_in_boxes:
            return _fractions(raw.place, raw.objects, len(raw.vectors))
        boxes = _last_boxes(raw.vectors)
        if boxes is None:
            expected = f"the boxes in the last {GEOMETRY} numbers of each vector"
            raise raw.place.error(f"expected {expected}, as in the first photo")
        return boxes

    def _raw(self, key: str) -> RawRegions:
        raw = self._layout.read(key)
        if self._labels is None:
            return raw
        return _joined(
            raw, self._labels.read(key), Place(self._labels.path, part=f"photo {brief(key)}")
        )


def _joined(raw: RawRegions, objects: DetectedObjects, place: Place) -> RawRegions:
    """Add labels of another file, and its boxes and size if only that file has them."""
    if len(objects.labels) != len(raw.vectors):
        raise place.error(
            f"expected {len(raw.vectors)} labels, as {raw.place.file.name} has regions, found "
            f"{len(objects.labels)}"
        )
    size_px = raw.objects.size_px or objects.size_px
    boxes = raw.objects.boxes
    # OSCAR's lists of objects lack the photo's size, without which boxes cannot be scaled.
    if boxes is None and objects.boxes is not None and size_px is not None:
        # Here, so that an error names the file that the boxes are in.
        boxes = _fractions(place, objects._replace(size_px=size_px), len(raw.vectors))
    return raw._replace(objects=DetectedObjects(objects.labels, boxes, size_px))


def _fractions(place: Place, objects: DetectedObjects, regions: int) -> FloatArray | None:
    """Return the boxes in fractions of the photo; a value above 1 means that they are pixels."""
    boxes, size_px = objects.boxes, objects.size_px
    if boxes is None:
        return None
    if boxes.shape != (regions, 4):
        raise place.error(f"boxes: expected shape ({regions}, 4), found {boxes.shape}")
    if not bool(np.any(boxes > 1 + _SLACK)):
        return boxes
    if size_px is None:
        raise place.error(
            "the boxes are in pixels and nothing says the photo's size: expected image_w and "
            "image_h beside them or in the file of labels"
        )
    size = np.array([*size_px, *size_px], dtype=np.float32)
    outside = (boxes < -_SLACK * size) | (boxes > (1 + _SLACK) * size)
    faulty = np.flatnonzero(outside.any(axis=1))
    if len(faulty):
        found = [round(float(value), 2) for value in boxes[faulty[0]]]
        width, height = size_px
        expected = f"inside of the photo's {width} x {height} px"
        raise place.error(f"boxes: expected {expected}, region {faulty[0]} has {found}")
    return boxes / size


def _last_boxes(vectors: FloatArray) -> FloatArray | None:
    """Return the boxes that the vectors end in, or None if they end in something else."""
    if vectors.ndim != 2 or vectors.shape[1] <= GEOMETRY or not len(vectors):
        return None
    boxes, sizes = vectors[:, -GEOMETRY:-2], vectors[:, -2:]
    inside = bool(np.all((boxes >= -_SLACK) & (boxes <= 1 + _SLACK)))
    fits = inside and np.allclose(boxes[:, 2:] - boxes[:, :2], sizes, atol=_SLACK)
    # Vectors that end in zeros would give empty boxes.
    return boxes if fits and bool(np.all(sizes > 0)) else None


def _nothing(layout: RegionLayout, labels: RegionLabels | None) -> DataError:
    first = next(iter(layout.keys), None)
    if first is None or labels is None:
        return DataError(layout.path, None, "holds no photo's regions")
    return DataError(
        labels.path, None, f"has labels of no photo of {layout.path}, e.g. {brief(first)}"
    )


class JoinedRegions:
    """Several sources as one: files of the splits, or parts of a large download."""

    def __init__(self, path: Path, stores: Sequence[RegionStore]) -> None:
        """Join sources."""
        self.path = path
        self._store_of: dict[str, RegionStore] = {}
        for store in stores:
            keys = store.keys()
            for key in keys:
                first = self._store_of.setdefault(key, store)
                if first is not store:
                    raise DataError(
                        store.path, None, f"the photo {brief(key)} is in {first.path}, too"
                    )
        self.fingerprint = joint_fingerprint(*(store.fingerprint for store in stores))

    def __contains__(self, key: object) -> bool:
        """Tell whether one of the sources has a photo."""
        return key in self._store_of

    def __len__(self) -> int:
        """Return the number of photos."""
        return len(self._store_of)

    def keys(self) -> Iterator[str]:
        """Return the name of each photo."""
        return iter(self._store_of)

    def read(self, key: str) -> RegionSet:
        """Read a photo from the source that has it."""
        if key not in self._store_of:
            raise DataError(self.path, None, f"no regions of a photo {brief(key)}")
        return self._store_of[key].read(key)
