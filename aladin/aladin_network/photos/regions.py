"""What a detector says of one photo: a vector, a box and perhaps a label for each region."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aladin_network.errors import RegionError

# Detectors round: a box may stand out of the photo by this fraction of it, and is then clipped.
_SLACK = 1e-3
# What an index has room for.
_LONGEST_SIDE_PX = 2**31 - 1
# Detectors' numbers are in the hundreds. Networks square them, and float32 ends at 3e38.
_LARGEST = 1e9
# Numbers by which VinVL tells a region's place, behind those of its appearance.
GEOMETRY = 6


@dataclass(frozen=True, eq=False)
class RegionSet:
    """The regions of one photo, the most certain first where the detector says so.

    Attributes:
        vectors: (regions, dim) float32; the appearance, and the geometry behind it where the
            network was trained with it.
        boxes: (regions, 4) float32, (x0, y0, x1, y1) in fractions of the photo; None: not known.
        labels: the detected class of each region; empty: not known.
        size_px: width and height of the photo; None: not known.
        detector: which one made them; None: not known.
    """

    vectors: npt.NDArray[np.float32]
    boxes: npt.NDArray[np.float32] | None = None
    labels: tuple[str, ...] = ()
    size_px: tuple[int, int] | None = None
    detector: str | None = None

    def __post_init__(self) -> None:
        """Check everything, and clip boxes that stand out by no more than rounding.

        Raises:
            RegionError: shapes disagree, a number is too large or not finite, a text holds half a
                character, or a box or the size is impossible.
        """
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
                raise RegionError(f"expected texts of Unicode, got {text!a}")
        if not all(1 <= side <= _LONGEST_SIDE_PX for side in self.size_px or ()):
            raise RegionError(
                f"size: expected 1 to {_LONGEST_SIDE_PX} px a side, got {self.size_px}"
            )

    def __len__(self) -> int:
        """Return the number of regions."""
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Numbers of each vector."""
        return self.vectors.shape[1]

    def digest(self) -> str:
        """Return the sha256 of all that a network or an answer may see of the regions."""
        boxes = self.boxes if self.boxes is not None else np.zeros((0, 4), np.float32)
        shapes = [self.vectors.shape, boxes.shape, self.labels, self.size_px, self.detector]
        digest = hashlib.sha256(json.dumps(shapes).encode())
        digest.update(self.vectors.tobytes())
        digest.update(boxes.tobytes())
        return digest.hexdigest()


def with_geometry(
    appearance: npt.NDArray[np.float32], boxes: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Append the six numbers by which VinVL tells a region's place (OSCAR, section 4).

    Args:
        appearance: (regions, dim).
        boxes: (regions, 4), see `RegionSet`.

    Returns:
        (regions, dim + 6): behind each vector x0, y0, x1, y1, the width and the height.
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
    """Lay out densely, refusing what is not finite."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(values).all():
        raise RegionError(f"{name}: expected finite numbers, got NaN or infinity")
    return values
