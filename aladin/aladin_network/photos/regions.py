"""Regions of a photo as found by a detector: vectors, boxes and labels."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aladin_network.errors import RegionError, brief

# Detectors round: a box may exceed the photo by this fraction of its size, and is then clipped.
_SLACK = 1e-3
# Largest value that the index format can store.
_LONGEST_SIDE_PX = 2**31 - 1
# Detectors' values are in the hundreds. Networks square them, and float32 ends at 3e38.
_LARGEST = 1e9
# Number of VinVL's values for a region's geometry, which follow those of its appearance.
GEOMETRY = 6


@dataclass(frozen=True, eq=False)
class RegionSet:
    """The regions of one photo, in order of confidence if the detector reports it.

    Attributes:
        vectors: (regions, dim) float32; the appearance, followed by the geometry if the network
            was trained with it.
        boxes: (regions, 4) float32, (x0, y0, x1, y1) in fractions of the photo's size, or None if
            unknown.
        labels: Detected class of each region; empty if unknown.
        size_px: Width and height of the photo, or None if unknown.
        detector: Name of the detector, or None if unknown.
    """

    vectors: npt.NDArray[np.float32]
    boxes: npt.NDArray[np.float32] | None = None
    labels: tuple[str, ...] = ()
    size_px: tuple[int, int] | None = None
    detector: str | None = None

    def __post_init__(self) -> None:
        """Validate all fields, and clip boxes that exceed the photo by a rounding error."""
        vectors = _real(self.vectors, "vectors")
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise RegionError(f"vectors: expected shape (regions, dim), got {vectors.shape}")
        if vectors.size and float(np.abs(vectors).max()) > _LARGEST:
            raise RegionError(f"vectors: expected numbers up to {_LARGEST:g}")
        object.__setattr__(self, "vectors", vectors)
        if self.boxes is not None:
            object.__setattr__(self, "boxes", _checked_boxes(self.boxes, len(vectors)))
        if self.labels and len(self.labels) != len(vectors):
            raise RegionError(f"labels: expected {len(vectors)}, got {len(self.labels)}")
        for text in (*self.labels, self.detector or ""):
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                raise RegionError(f"expected texts of Unicode, got {brief(text)}")
        if not all(1 <= side <= _LONGEST_SIDE_PX for side in self.size_px or ()):
            raise RegionError(
                f"size: expected 1 to {_LONGEST_SIDE_PX} px a side, got {self.size_px}"
            )

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return self.vectors.shape[1]

    def digest(self) -> str:
        """Return the sha256 of everything that a network or a search result may use."""
        boxes = self.boxes if self.boxes is not None else np.zeros((0, 4), np.float32)
        shapes = [self.vectors.shape, boxes.shape, self.labels, self.size_px, self.detector]
        digest = hashlib.sha256(json.dumps(shapes).encode())
        digest.update(self.vectors.tobytes())
        digest.update(boxes.tobytes())
        return digest.hexdigest()


def with_geometry(
    appearance: npt.NDArray[np.float32], boxes: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Append VinVL's six values for a region's geometry (OSCAR, section 4).

    (regions, dim + 6) float32: each vector, followed by x0, y0, x1, y1, width and height.
    """
    sizes = boxes[:, 2:] - boxes[:, :2]
    return np.concatenate([appearance, boxes, sizes], axis=1, dtype=np.float32)


def _checked_boxes(boxes: npt.NDArray[np.float32], regions: int) -> npt.NDArray[np.float32]:
    boxes = _real(boxes, "boxes")
    if boxes.shape != (regions, 4):
        raise RegionError(f"boxes: expected shape ({regions}, 4), got {boxes.shape}")
    outside = (boxes < -_SLACK) | (boxes > 1 + _SLACK)
    inverted = boxes[:, 2:] < boxes[:, :2]
    for faulty, what in ((outside, "inside the photo"), (inverted, "with x0 <= x1, y0 <= y1")):
        rows = np.flatnonzero(faulty.any(axis=1))
        if len(rows):
            found = [round(float(value), 4) for value in boxes[rows[0]]]
            raise RegionError(f"boxes: expected {what}, region {rows[0]} has {found}")
    return boxes.clip(0, 1)


def _real(values: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.float32]:
    """Convert to a contiguous float32 array, and check that all values are finite."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(values).all():
        raise RegionError(f"{name}: expected finite numbers, got NaN or infinity")
    return values
