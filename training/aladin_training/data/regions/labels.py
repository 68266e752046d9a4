"""Labels of regions in a file of their own, and detected objects as JSON.

The JSON of a photo is that of OSCAR, VinVL and scene_graph_benchmark; a file is a table of such
JSON or one JSON object.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np

from aladin_network.errors import DataError, brief
from aladin_training.data.fields import Place, parse_json, readable
from aladin_training.data.regions.line_file import LineFile
from aladin_training.data.regions.store import (
    DetectedObjects,
    FloatArray,
    RegionLabels,
    file_fingerprint,
    parse_count,
)


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
    """Open labels: a table of ``id  JSON``, or a ``.json`` of one object with the ids as keys.

    The former, such as ``predictions.tsv``, is read line by line, the latter is held in memory. The
    value of a photo is described by `parse_objects`.
    """
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
