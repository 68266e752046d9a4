"""Stores of regions: those of one source, checked when they are read, and several joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from aladin_network.errors import DataError, RegionError, brief
from aladin_network.photos.regions import GEOMETRY, RegionSet
from aladin_training.data.fields import Place
from aladin_training.data.regions.store import (
    DetectedObjects,
    FloatArray,
    RawRegions,
    RegionLabels,
    RegionLayout,
    RegionStore,
    joint_fingerprint,
)

# Tolerance for rounded boxes, in fractions of the photo.
_SLACK = 1e-3


class CheckedRegions:
    """The regions of one source; those of each photo are checked on reading. See `RegionStore`.

    All vectors have the size of the source's first photo's. If boxes are given only by the vectors,
    which end in them as VinVL's do (x0, y0, x1, y1, width and height in fractions of the photo),
    they are taken from there. If boxes and vectors are given separately, a network that was trained
    with both joins them (`RegionsImageEncoder.preprocess`).
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
