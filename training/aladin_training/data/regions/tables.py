"""Tables of regions, and labels of regions in files of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from aladin_network.errors import DataError, brief
from aladin_training.data.fields import Place, parse_json, readable
from aladin_training.data.regions.store import (
    DetectedObjects,
    FloatArray,
    RawRegions,
    RegionLabels,
    RegionLayout,
    decode_floats,
    file_fingerprint,
    parse_count,
)

_MAX_KEY_BYTES = 1024
# A hundred regions of 2,054 numbers are 1.1 MB of base64; a longer line is no line of regions.
_MAX_LINE_BYTES = 2**26


class LineFile:
    """The lines of one file by key, which is the text before the first tab."""

    def __init__(self, path: Path) -> None:
        """Find every line; a ``.lineidx`` of the same name beside the file is used and checked."""
        self.path = path
        self._rows: dict[str, int] = {}
        lineidx = path.with_suffix(".lineidx")
        starts: list[int] = []
        with readable(path), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if lineidx.is_file():
                starts = _read_lineidx(lineidx, path, file, size)
                found = _keys_at(path, file, starts)
            else:
                found = _scan(path, file, starts)
            for key in found:
                self._add(key)
        if not self._rows:
            raise DataError(path, None, "is empty")
        self._bounds: npt.NDArray[np.int64] = np.array([*starts, size], dtype=np.int64)

    @property
    def keys(self) -> Collection[str]:
        """The keys in the order of the lines."""
        return self._rows.keys()

    def place(self, key: str) -> Place:
        """Return where a key's line is, for errors."""
        return Place(self.path, self._rows[key] + 1, f"photo {key!r}")

    def read(self, key: str) -> list[bytes]:
        """Return the cells of a key's line, including the key."""
        row = self._rows[key]
        start, stop = (int(bound) for bound in self._bounds[row : row + 2])
        try:
            with self.path.open("rb") as file:
                line = os.pread(file.fileno(), stop - start, start)
        except OSError as error:
            raise self.place(key).error(error.strerror or "cannot be read") from error
        if len(line) < stop - start:
            raise self.place(key).error(f"expected {stop - start} bytes, found {len(line)}")
        line = line.rstrip(b"\r\n")
        if b"\n" in line:
            reason = f"{self.path.with_suffix('.lineidx').name} skips a line behind this one"
            raise self.place(key).error(reason)
        return line.split(b"\t")

    def _add(self, key: str) -> None:
        if key in self._rows:
            number = len(self._rows) + 1
            first = self._rows[key] + 1
            reason = f"the photo {key!r} repeats, it was first on line {first}"
            raise DataError(self.path, number, reason)
        self._rows[key] = len(self._rows)


def _read_lineidx(lineidx: Path, path: Path, file: BinaryIO, size: int) -> list[int]:
    """Read the offsets of the lines, and check that lines begin there."""
    starts: list[int] = []
    with lineidx.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip().isdigit():
                raise DataError(lineidx, number, f"expected a whole number, found {line[:20]!r}")
            start = int(line)
            at_begin = start == 0 if not starts else starts[-1] < start < size
            if not at_begin or (start > 0 and os.pread(file.fileno(), 1, start - 1) != b"\n"):
                reason = f"no line of {path.name} ({size} bytes) begins at byte {start}"
                raise DataError(lineidx, number, f"{reason}; delete the file if it is stale")
            starts.append(start)
    return starts


def _keys_at(path: Path, file: BinaryIO, starts: list[int]) -> Iterator[str]:
    for number, start in enumerate(starts, start=1):
        yield _key(path, number, os.pread(file.fileno(), _MAX_KEY_BYTES, start))


def _scan(path: Path, file: BinaryIO, starts: list[int]) -> Iterator[str]:
    """Read the whole file, recording the offset of each line."""
    position = 0
    while line := file.readline(_MAX_LINE_BYTES):
        number = len(starts) + 1
        if len(line) == _MAX_LINE_BYTES:
            raise DataError(path, number, f"has more than {_MAX_LINE_BYTES} bytes")
        starts.append(position)
        position += len(line)
        yield _key(path, number, line[:_MAX_KEY_BYTES])


def _key(path: Path, number: int, begin: bytes) -> str:
    key, tab, _ = begin.partition(b"\t")
    if not tab or not key.strip():
        reason = f"expected a photo's id and a tab, found {begin[:20]!r}"
        raise DataError(path, number, reason)
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(path, number, f"the id {key[:20]!r} is not UTF-8") from None


def parse_objects(value: object, place: Place) -> DetectedObjects:
    """Parse the JSON of one photo: its objects, or an object with them as ``objects``.

    An object is a name or ``{"class": ..., "rect": [x0, y0, x1, y1]}``. In their place there may be
    the lists ``class`` (or ``labels``) and ``boxes``, and beside them ``image_w`` and ``image_h``.
    """
    if isinstance(value, list):
        labels, boxes = _listed(cast(list[object], value), place)
        return DetectedObjects(labels, boxes, None)
    if not isinstance(value, dict):
        raise place.error(f"expected the list of a photo's objects, found {_shown(value)}")
    fields = cast(dict[str, Any], value)
    size_px = image_size(fields, place)
    if "objects" in fields:
        objects = fields["objects"]
        if not isinstance(objects, list):
            raise place.error(f"objects: expected a list, found {_shown(objects)}")
        labels, boxes = _listed(cast(list[object], objects), place)
        return DetectedObjects(labels, boxes, size_px)
    name = next((name for name in ("class", "labels") if name in fields), None)
    if name is None:
        raise place.error(f"expected 'objects', 'class' or 'labels', found {sorted(fields)}")
    names = fields[name]
    if not isinstance(names, list):
        raise place.error(f"{name}: expected a list of names, found {_shown(names)}")
    labels = tuple(_name(each, place) for each in cast(list[object], names))
    boxes = fields.get("boxes")
    return DetectedObjects(
        labels, None if boxes is None else _boxes(boxes, len(labels), "boxes", place), size_px
    )


def image_size(fields: dict[str, Any], place: Place) -> tuple[int, int] | None:
    """Return the photo's ``image_w`` and ``image_h``, or None without them."""
    names = ("image_w", "image_h")
    if not any(name in fields for name in names):
        return None
    width, height = (parse_count(fields.get(name), name, place) for name in names)
    return width, height


def _listed(objects: list[object], place: Place) -> tuple[tuple[str, ...], FloatArray | None]:
    labels: list[str] = []
    rects: list[object] = []
    for number, each in enumerate(objects):
        if isinstance(each, dict):
            fields = cast(dict[str, Any], each)
            if "class" not in fields:
                raise place.error(f"objects[{number}] lacks 'class', has {sorted(fields)}")
            labels.append(_name(fields["class"], place))
            if "rect" in fields:
                rects.append(fields["rect"])
        else:
            labels.append(_name(each, place))
    whole = bool(rects) and len(rects) == len(objects)
    return tuple(labels), _boxes(rects, len(rects), "rect", place) if whole else None


def _boxes(values: object, count: int, name: str, place: Place) -> FloatArray:
    try:
        boxes = np.array(values, dtype=np.float32)
    except (TypeError, ValueError):
        raise place.error(f"{name}: expected four numbers a box") from None
    if boxes.shape != (count, 4):
        raise place.error(f"{name}: expected shape ({count}, 4), found {boxes.shape}")
    return boxes


def _name(value: object, place: Place) -> str:
    if not isinstance(value, str):
        raise place.error(f"expected the name of a class, found {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return repr(value)[:40]


def open_labels(path: Path) -> RegionLabels:
    """Open labels: a table of ``id  JSON``, or a ``.json`` with ids as keys; `parse_objects`."""
    if path.suffix.lower() == ".tsv":
        return _open_table(path)
    if path.suffix.lower() == ".json":
        return _open_object(path)
    raise DataError(path, None, "expected labels of regions as .tsv or .json")


def _open_table(path: Path) -> RegionLabels:
    """Open a table with one photo on each line: its id, a tab and JSON."""
    lines = LineFile(path)

    def read(key: str) -> DetectedObjects:
        place, cells = lines.place(key), lines.read(key)
        if len(cells) != 2:
            raise place.error(f"expected an id and JSON, found {len(cells)} columns")
        return parse_objects(parse_json(cells[1], place), place)

    return RegionLabels(path, file_fingerprint(path), lines.keys, read)


def _open_object(path: Path) -> RegionLabels:
    """Open one JSON object, held in memory."""
    try:
        with readable(path):
            data: object = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(path, None, f"not JSON ({error})") from None
    if not isinstance(data, dict):
        raise DataError(path, None, "expected a JSON object with the ids of photos as keys")
    photos = cast(dict[str, Any], data)

    def read(key: str) -> DetectedObjects:
        return parse_objects(photos[key], Place(path, part=f"photo {brief(key)}"))

    return RegionLabels(path, file_fingerprint(path), photos.keys(), read)


COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


def parse_bottom_up(cells: list[bytes], place: Place) -> RawRegions:
    """Parse a line of bottom-up attention."""
    width, height, regions = (
        parse_count(cell, name, place) for name, cell in zip(COLUMNS[1:4], cells[1:4], strict=True)
    )
    return RawRegions(
        place=place,
        vectors=decode_floats(cells[5], regions, "features", place),
        objects=DetectedObjects(
            boxes=decode_floats(cells[4], regions, "boxes", place), size_px=(width, height)
        ),
    )


def parse_vinvl(cells: list[bytes], place: Place) -> RawRegions:
    """Parse a line of ``id  num_boxes  features``."""
    regions = parse_count(cells[1], "num_boxes", place)
    return RawRegions(place, decode_floats(cells[2], regions, "features", place))


def parse_vinvl_json(cells: list[bytes], place: Place) -> RawRegions:
    """Parse a line of ``id  {...}``."""
    data = parse_json(cells[1], place)
    if isinstance(data, dict):
        fields = cast(dict[str, Any], data)
        if "features" in fields:
            regions = parse_count(fields.get("num_boxes"), "num_boxes", place)
            vectors = decode_floats(_text(fields, "features", place), regions, "features", place)
            return RawRegions(place, vectors, DetectedObjects(size_px=image_size(fields, place)))
        if "objects" in fields:
            found = parse_objects(fields, place)
            return RawRegions(place, _features(fields["objects"], place), found)
    raise place.error(
        "expected 'features' with 'num_boxes', or 'objects' with a 'feature' each; a file of "
        "labels alone goes with a file of features"
    )


def _features(objects: list[Any], place: Place) -> FloatArray:
    if not objects:
        raise place.error("objects: expected at least one")
    rows: list[FloatArray] = []
    for number, each in enumerate(objects):
        name = f"objects[{number}].feature"
        if not isinstance(each, dict) or "feature" not in each:
            raise place.error(
                f"objects[{number}] lacks 'feature'; a file of labels goes with a file of features"
            )
        row = decode_floats(_text(cast(dict[str, Any], each), "feature", place), 1, name, place)
        if rows and row.shape != rows[0].shape:
            expected, found = rows[0].shape[1], row.shape[1]
            raise place.error(f"{name}: expected {expected} numbers, found {found}")
        rows.append(row)
    return np.concatenate(rows)


def _text(fields: dict[str, Any], name: str, place: Place) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise place.error(f"{name}: expected base64, found {repr(value)[:40]}")
    return value


# Parsers by number of columns.
_LAYOUTS: Mapping[int, Callable[[list[bytes], Place], RawRegions]] = {
    2: parse_vinvl_json,
    3: parse_vinvl,
    len(COLUMNS): parse_bottom_up,
}


def open_tsv(path: Path) -> RegionLayout:
    """Open one table."""
    lines = LineFile(path)
    first = next(iter(lines.keys))
    columns = len(lines.read(first))
    if columns not in _LAYOUTS:
        known = ", ".join(map(str, _LAYOUTS))
        raise lines.place(first).error(
            f"expected a table of regions with {known} columns, found {columns}"
        )

    def read(key: str) -> RawRegions:
        place, cells = lines.place(key), lines.read(key)
        if len(cells) != columns:
            raise place.error(f"expected {columns} columns, as on line 1, found {len(cells)}")
        return _LAYOUTS[columns](cells, place)

    return RegionLayout(path, file_fingerprint(path), lines.keys, read)
