"""Tables of regions, one photo on each line; the number of columns determines the format.

Bottom-up attention (Anderson et al., CVPR 2018)::

    image_id  image_w  image_h  num_boxes  boxes  features

VinVL, OSCAR and scene_graph_benchmark::

    id  num_boxes  features                       features.tsv of the public VinVL downloads
    id  {"num_boxes": n, "features": "..."}       feature.tsv of OSCAR's tasks
    id  {"image_w": w, "image_h": h,              predictions.tsv of scene_graph_benchmark
         "objects": [{"class": "dog", "rect": [x0, y0, x1, y1], "feature": "..."}]}

Features are base64 of float32; so are the boxes of bottom-up attention. All boxes are in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from aladin_training.data.fields import Place, parse_json
from aladin_training.data.regions.labels import image_size, parse_objects
from aladin_training.data.regions.line_file import LineFile
from aladin_training.data.regions.store import (
    DetectedObjects,
    FloatArray,
    RawRegions,
    RegionLayout,
    decode_floats,
    file_fingerprint,
    parse_count,
)

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
