"""Detected objects as JSON: what OSCAR, VinVL and scene_graph_benchmark write of one photo."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from training.data.fields import Place
from training.data.regions.numbers import parse_count
from training.data.regions.store import FloatArray


class DetectedObjects(NamedTuple):
    """What is known of a photo's objects beside their vectors.

    Attributes:
        labels: the class of each.
        boxes: (objects, 4) in pixels; None: not every object has one.
        size_px: width and height of the photo; None: not said.
    """

    labels: tuple[str, ...]
    boxes: FloatArray | None
    size_px: tuple[int, int] | None


def parse_objects(value: object, place: Place) -> DetectedObjects:
    """Take the JSON of one photo apart.

    Args:
        value: a list of objects, each a name or ``{"class": ..., "rect": [x0, y0, x1, y1]}``; or
            an object with such a list as ``objects``, or with the lists ``class`` (or
            ``labels``) and ``boxes``, and perhaps ``image_w`` and ``image_h``.
        place: for errors.

    Raises:
        DataError: it is something else.
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
    """Return the width and height that ``image_w`` and ``image_h`` say, if they do.

    Raises:
        DataError: one of them is missing or no whole number.
    """
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
