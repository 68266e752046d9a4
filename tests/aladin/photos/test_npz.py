"""Files of regions: what people have is read, and an upload can do no harm."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_network.errors import RegionError, RegionsTooLargeError
from aladin_network.photos.region_files import RegionLimits, read_region_npz, write_region_npz
from aladin_network.photos.regions import RegionSet

VECTORS = np.arange(6, dtype=np.float32).reshape(2, 3)
BOXES = np.array([[0, 0, 0.5, 1], [0.25, 0.5, 0.75, 0.5]], dtype=np.float32)
LIMITS = RegionLimits()


def packed(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def read(limits: RegionLimits = LIMITS, **arrays: Any) -> RegionSet:
    return read_region_npz(packed(**arrays), "upload", limits)


@pytest.mark.parametrize(
    "regions",
    [
        RegionSet(VECTORS),
        RegionSet(VECTORS, BOXES, ("dog", "red ball"), (640, 480), "vinvl"),
        RegionSet(np.zeros((0, 3), np.float32), np.zeros((0, 4), np.float32)),
    ],
)
def test_regions_are_read_as_they_were_written(tmp_path: Path, regions: RegionSet) -> None:
    path = tmp_path / "regions of a photo"
    write_region_npz(path, regions)
    found = read_region_npz(path, "file", LIMITS)
    assert found.digest() == regions.digest()
    assert read_region_npz(path.read_bytes(), "bytes", LIMITS).digest() == regions.digest()


def test_boxes_in_pixels() -> None:
    pixels = BOXES * [640, 480, 640, 480]
    sizes: list[dict[str, Any]] = [{"image_size": [640, 480]}, {"image_w": 640, "image_h": 480}]
    for size in sizes:
        found = read(features=VECTORS.astype(np.float64), bbox=pixels, **size)
        assert found.size_px == (640, 480)
        assert found.boxes is not None
        np.testing.assert_allclose(found.boxes, BOXES)
        np.testing.assert_array_equal(found.vectors, VECTORS)
    with pytest.raises(RegionError, match=r"upload: boxes: in pixels; expected image_size"):
        read(features=VECTORS, bbox=pixels)


def test_a_vector_a_column() -> None:
    found = read(x=VECTORS.T, bbox=BOXES, info={"objects_id": [1, 2]})
    np.testing.assert_array_equal(found.vectors, VECTORS)  # and the pickled info is never read
    np.testing.assert_array_equal(read(x=np.asfortranarray(VECTORS)).vectors, VECTORS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"boxes": BOXES}, "expected an array vectors or .*, found none of them"),
        ({"vectors": np.array([[{}]])}, "vectors: expected numbers, got object"),
        ({"vectors": VECTORS, "labels": np.array([{}, 1])}, "labels: expected texts, got object"),
        ({"vectors": VECTORS, "labels": [b"\xff", b"a"]}, "expected texts of Unicode"),
        ({"vectors": VECTORS, "labels": ["dog"] * 1001}, "labels: expected at most 1000, got 1001"),
        ({"vectors": VECTORS, "labels": ["d" * 1025, "d"]}, "at most 4096 bytes each, got 4100"),
        ({"vectors": VECTORS, "detector": ["a", "b"]}, "detector: expected at most 1, got 2"),
        ({"vectors": VECTORS, "image_size": [1, 2, 3]}, "a width and a height, got"),
        ({"vectors": VECTORS, "boxes": BOXES * 9, "image_size": [0, 9]}, "at least 1 x 1 px"),
        ({"vectors": VECTORS, "boxes": np.float32(9), "image_size": [9, 9]}, "boxes: expected"),
        ({"vectors": VECTORS, "image_size": [np.inf, 9]}, "cannot be read as an npz file"),
        ({"vectors": VECTORS, "labels": ["dog", "\ud800"]}, "expected texts of Unicode"),
        ({"vectors": np.zeros((1001, 1))}, "expected at most 1000 regions, got 1001"),
    ],
)
def test_invalid_arrays_are_refused(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(RegionError, match=f"^upload: .*{message}"):
        read(**arrays)


def test_sizes_are_known_before_anything_is_unpacked() -> None:
    limits = RegionLimits(max_bytes=10_000)
    bomb = packed(vectors=np.zeros((100, 1000), np.float32))
    assert len(bomb) < limits.max_bytes
    with pytest.raises(RegionsTooLargeError, match=r"^upload: .+ 10000 bytes unpacked, got 400128"):
        read_region_npz(bomb, "upload", limits)
    with pytest.raises(RegionsTooLargeError, match=r"^upload: .+ 10000 bytes, got 10001"):
        read_region_npz(b"P" * 10_001, "upload", limits)
    with pytest.raises(RegionError, match="expected at most 100 arrays"):
        read(**{f"a{number}": 0 for number in range(101)})


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_directory_that_understates_is_no_way_around_the_limits(packing: int) -> None:
    claimed = len(saved(VECTORS))
    zeros = bytes(2**21)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        archive.writestr("vectors.npy", saved(VECTORS) + zeros)
    lying = bytearray(file.getvalue())
    place = lying.rindex(b"PK\x01\x02") + 24  # where the directory says the unpacked size
    assert int.from_bytes(lying[place : place + 4], "little") == claimed + len(zeros)
    lying[place : place + 4] = claimed.to_bytes(4, "little")
    tracemalloc.start()
    try:
        with pytest.raises(RegionError, match=r"Bad CRC-32|packed in a way"):
            read_region_npz(bytes(lying), "upload", LIMITS)
        assert tracemalloc.get_traced_memory()[1] < len(zeros) / 2
    finally:
        tracemalloc.stop()


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy(header: str, name: str = "vectors") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        text = header.encode()
        length = len(text).to_bytes(2, "little")
        archive.writestr("vectors.npy", saved(VECTORS))
        archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + length + text + b"\xff" * 8)
    return file.getvalue()


def header(dtype: str, shape: str) -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Path("none.npz"), "cannot be read as an npz file"),
        (b"no zip", "cannot be read as an npz file"),
        (packed(vectors=VECTORS)[:-30], "cannot be read as an npz file"),
        (npy(header("<f4", "(9999999999, 9999)"), "boxes"), "8 bytes"),
        (npy(header("<f4", "(-1, -2)"), "boxes"), "8 bytes"),
        (npy(header("<f4", "(2,)"), "boxes"), r"expected shape|finite|in pixels"),
        (npy(header("<U1", "(2,)"), "labels"), "expected texts of Unicode"),
        (npy(header("<U0", "(99999999,)"), "labels"), "expected texts, got <U0"),
        (npy("{'descr': __import__('os')}", "boxes"), "boxes: not an array"),
        (npy("{'descr': (((", "boxes"), "boxes: not an array"),
        (npy("{" * 5000, "boxes"), "boxes: not an array"),
    ],
)
def test_files_of_other_kinds_are_refused(data: Any, message: str) -> None:
    with pytest.raises(RegionError, match=f"^upload: .*{message}"):
        read_region_npz(data, "upload", LIMITS)


def test_every_damaged_byte_is_an_error_or_harmless() -> None:
    whole = packed(vectors=VECTORS, boxes=BOXES, labels=["dog", "ball"])
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        try:
            assert read_region_npz(bytes(damaged), "upload", LIMITS).dim == 3
        except RegionError as error:
            assert str(error).startswith("upload: ")
