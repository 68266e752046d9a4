"""VinVL's and OSCAR's tables, and scene_graph_benchmark's: one photo a line.

    id  num_boxes  features                       features.tsv of the public VinVL downloads
    id  {"num_boxes": n, "features": "..."}       feature.tsv of OSCAR's tasks
    id  {"image_w": w, "image_h": h,              predictions.tsv of scene_graph_benchmark
         "objects": [{"class": "dog", "rect": [x0, y0, x1, y1], "feature": "..."}]}

Features are base64 of float32, boxes are in pixels.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from training.data.fields import Place, parse_json
from training.data.regions.numbers import decode_floats, parse_count
from training.data.regions.objects import image_size, parse_objects
from training.data.regions.store import FloatArray, RawRegions


def parse_vinvl(cells: list[bytes], place: Place) -> RawRegions:
    """Take a line of ``id  num_boxes  features`` apart.

    Raises:
        DataError: a cell is not what its column holds.
    """
    regions = parse_count(cells[1], "num_boxes", place)
    return RawRegions(place, decode_floats(cells[2], regions, "features", place))


def parse_vinvl_json(cells: list[bytes], place: Place) -> RawRegions:
    """Take a line of ``id  {...}`` apart.

    Raises:
        DataError: the second cell is not JSON of one of the two forms.
    """
    data = parse_json(cells[1], place)
    if isinstance(data, dict):
        fields = cast(dict[str, Any], data)
        if "features" in fields:
            regions = parse_count(fields.get("num_boxes"), "num_boxes", place)
            vectors = decode_floats(_text(fields, "features", place), regions, "features", place)
            return RawRegions(place, vectors, size_px=image_size(fields, place))
        if "objects" in fields:
            found = parse_objects(fields, place)
            vectors = _features(fields["objects"], place)
            return RawRegions(place, vectors, found.boxes, found.size_px, found.labels)
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
