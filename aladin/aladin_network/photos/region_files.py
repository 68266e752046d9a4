"""Regions of a photo as an npz file, written here, uploaded, or produced by other tools.

    vectors (or features, feat, ...)   (regions, dim) numbers
    boxes (or bbox, bu_box)            (regions, 4), pixels with the photo's size, or fractions
    image_size, or image_w, image_h    the photo's width and height in pixels
    labels                             one text per region
    detector                           name of the detector

Uploads are not trusted. The size of an array is known from the file's directory and the array's
header before memory is allocated, no more is unpacked than the directory declares, and nothing is
unpickled.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aladin_network.errors import RegionError, RegionsTooLargeError
from aladin_network.photos.regions import RegionSet

# Names in the order in which they are searched; the first one is written.
_VECTORS = ("vectors", "features", "feat", "bu_att", "x")
_BOXES = ("boxes", "bbox", "bu_box")
_NUMBERS, _TEXTS = "fiu", "US"
# Fractions are at most 1, except for a detector's rounding; no photo has boxes of one pixel only.
_LARGEST_FRACTION = 1.01
_MAX_HEADER_BYTES = 4096
# Upper limit for labels and detector ids.
_MAX_TEXT_BYTES = 4096
# Signature of each entry of a zip's directory, and the largest number of entries of an upload:
# reading the directory itself takes time.
_ENTRY = b"PK\x01\x02"
_MAX_ENTRIES = 100
# Compression methods of NumPy; only for these does the library limit how much it unpacks.
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Exceptions by which libraries report that a file is truncated, encrypted, compressed in an unknown
# way, or contains invalid text or an infinite size. NotImplementedError is a RuntimeError.
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, kw_only=True)
class RegionLimits:
    """Limits of a file of regions.

    Attributes:
        max_bytes: Largest size in bytes of the file, and of its arrays once they are unpacked.
        max_regions: Largest number of regions in it.
    """

    max_bytes: int = 8 * 2**20
    max_regions: int = 1000


def read_region_npz(data: bytes | Path, source: str, limits: RegionLimits) -> RegionSet:
    """Read the regions of a photo.

    Args:
        data: Path of the file, or its bytes.
        source: Name of the file in error messages.
        limits: Limits of the file.

    Raises:
        RegionsTooLargeError: If it has too many bytes, packed or unpacked.
        RegionError: If it is not such a file, or its regions cannot be used.
    """
    try:
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        if size > limits.max_bytes:
            raise RegionsTooLargeError(f"expected at most {limits.max_bytes} bytes, got {size}")
        if isinstance(data, bytes) and data.count(_ENTRY) > _MAX_ENTRIES:
            raise RegionError(f"expected at most {_MAX_ENTRIES} arrays")
        with zipfile.ZipFile(data if isinstance(data, Path) else io.BytesIO(data)) as file:
            return _read(_Arrays(file, limits.max_bytes), limits.max_regions)
    except RegionError as error:
        raise type(error)(f"{source}: {error}") from None
    except _DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise RegionError(f"{source}: cannot be read as an npz file ({reason})") from error


def write_region_npz(path: Path, regions: RegionSet) -> None:
    """Write regions so that `read_region_npz` returns the same.

    Args:
        path: Path of the file, with any name.
        regions: Regions of one photo.
    """
    arrays: dict[str, Any] = {_VECTORS[0]: regions.vectors}
    if regions.boxes is not None:
        arrays[_BOXES[0]] = regions.boxes
    if regions.labels:
        arrays["labels"] = np.array(regions.labels)
    if regions.size_px is not None:
        arrays["image_size"] = np.array(regions.size_px, dtype=np.int32)
    if regions.detector is not None:
        arrays["detector"] = np.array(regions.detector)
    with path.open("wb") as file:
        np.savez(file, **arrays)


class _Arrays:
    """The arrays of an npz file, read on demand."""

    def __init__(self, file: zipfile.ZipFile, max_bytes: int) -> None:
        self._file = file
        self._entries: Mapping[str, zipfile.ZipInfo] = file.NameToInfo
        unpacked = sum(entry.file_size for entry in self._entries.values())
        if unpacked > max_bytes:
            raise RegionsTooLargeError(
                f"expected at most {max_bytes} bytes unpacked, got {unpacked}"
            )

    def first_of(self, names: tuple[str, ...], kinds: str) -> npt.NDArray[Any] | None:
        """Return the first existing array among `names`, or None if there is none."""
        name = next((name for name in names if f"{name}.npy" in self._entries), None)
        return None if name is None else self._read(name, kinds)

    def _read(self, name: str, kinds: str) -> npt.NDArray[Any]:
        content = io.BytesIO(self._unpack(name))
        try:
            version = np.lib.format.read_magic(content)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = read(content, max_header_size=_MAX_HEADER_BYTES)
        except Exception as error:
            # The header is a Python literal: a bad one fails in any of the parser's ways.
            raise RegionError(f"{name}: not an array ({error})") from error
        if dtype.kind not in kinds or not dtype.itemsize:
            expected = "numbers" if kinds == _NUMBERS else "texts"
            raise RegionError(f"{name}: expected {expected}, got {dtype}")
        values = content.read()
        sides = [int(side) for side in shape]
        if min(sides, default=0) < 0 or math.prod(sides) * dtype.itemsize != len(values):
            raise RegionError(f"{name}: {len(values)} bytes are not {dtype} of shape {shape}")
        return np.frombuffer(values, dtype).reshape(sides, order="F" if fortran else "C")

    def _unpack(self, name: str) -> bytes:
        entry = self._entries[f"{name}.npy"]
        if entry.compress_type not in _PACKED:
            raise RegionError(f"{name}: packed in a way that numpy does not use")
        # With a number of bytes: without it, everything is unpacked first, whatever size the
        # directory states.
        with self._file.open(entry) as packed:
            return packed.read(entry.file_size)


def _read(arrays: _Arrays, max_regions: int) -> RegionSet:
    vectors = arrays.first_of(_VECTORS, _NUMBERS)
    if vectors is None:
        raise RegionError(f"expected an array {' or '.join(_VECTORS)}, found none of them")
    boxes = arrays.first_of(_BOXES, _NUMBERS)
    # bottom-up-attention.pytorch stores one vector per column.
    if boxes is not None and vectors.shape[1:] == boxes.shape[:1] != vectors.shape[:1]:
        vectors = vectors.T
    if vectors.ndim == 2 and len(vectors) > max_regions:
        raise RegionError(f"expected at most {max_regions} regions, got {len(vectors)}")
    size_px = _size_px(arrays)
    return RegionSet(
        vectors=_float32(vectors),
        boxes=None if boxes is None else _fractions(_float32(boxes), size_px),
        labels=_texts(arrays, "labels", max_regions),
        size_px=size_px,
        detector=next(iter(_texts(arrays, "detector", 1)), None),
    )


def _float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    # Values out of range become infinite, and are refused as such.
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _size_px(arrays: _Arrays) -> tuple[int, int] | None:
    size = arrays.first_of(("image_size",), _NUMBERS)
    if size is not None:
        if size.shape != (2,):
            raise RegionError(f"image_size: expected a width and a height, got {size.tolist()}")
        return int(size[0]), int(size[1])
    sides = [arrays.first_of((name,), _NUMBERS) for name in ("image_w", "image_h")]
    found = [int(side.flat[0]) for side in sides if side is not None and side.size == 1]
    return (found[0], found[1]) if len(found) == 2 else None


def _fractions(
    boxes: npt.NDArray[np.float32], size_px: tuple[int, int] | None
) -> npt.NDArray[np.float32]:
    if boxes.size == 0 or boxes.max() <= _LARGEST_FRACTION:
        return boxes
    if size_px is None:
        raise RegionError("boxes: in pixels; expected image_size, the photo's width and height")
    if boxes.shape[-1:] != (4,):
        raise RegionError(f"boxes: expected four numbers a region, got shape {boxes.shape}")
    width_px, height_px = size_px
    if min(size_px) < 1:
        raise RegionError(f"image_size: expected at least 1 x 1 px, got {size_px}")
    return boxes / np.array([width_px, height_px] * 2, dtype=np.float32)


def _texts(arrays: _Arrays, name: str, at_most: int) -> tuple[str, ...]:
    values = arrays.first_of((name,), _TEXTS)
    if values is None:
        return ()
    if values.size > at_most:
        raise RegionError(f"{name}: expected at most {at_most}, got {values.size}")
    width = values.dtype.itemsize
    if width > _MAX_TEXT_BYTES:
        raise RegionError(f"{name}: expected at most {_MAX_TEXT_BYTES} bytes each, got {width}")
    # Decoded here: NumPy does not check code points, and an unpaired surrogate would fail much
    # later.
    codec = {"|": "utf-8", "<": "utf-32-le", ">": "utf-32-be"}[values.dtype.str[0]]
    stored = values.tobytes()
    try:
        return tuple(
            stored[start : start + width].decode(codec).rstrip("\0")
            for start in range(0, len(stored), width)
        )
    except UnicodeDecodeError as error:
        raise RegionError(f"{name}: expected texts of Unicode ({error.reason})") from error
