"""Regions in HDF5."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from aladin_network.errors import ConfigError, DataError
from aladin_training.data.regions import open_regions
from tests.training.data.regions.region_files import (
    assert_regions,
    geometry,
    pixel_boxes,
    vectors,
)

WIDTH, HEIGHT = 30, 60
COUNTS = [2, 4, 3]
IDS = ["7", "200", "31"]
VECTORS = [vectors(count, seed=count) for count in COUNTS]
BOXES = [pixel_boxes(count, WIDTH, HEIGHT, seed=count) for count in COUNTS]
FRACTIONS = [boxes / np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], np.float32) for boxes in BOXES]
SPATIAL = [geometry(boxes, WIDTH, HEIGHT) for boxes in BOXES]
ENDS = np.cumsum(COUNTS)

Fill = Callable[[Any], None]


def groups(file: Any) -> None:
    for key, photo, boxes in zip(IDS, VECTORS, BOXES, strict=True):
        file[f"{key}/features"] = photo
        file[f"{key}/boxes"] = boxes
        file[f"{key}/img_w"], file[f"{key}/img_h"] = WIDTH, HEIGHT


def names(file: Any) -> None:
    for key, photo, boxes in zip(IDS, VECTORS, BOXES, strict=True):
        file[f"{key}_features"] = photo
        file[f"{key}_boxes"] = boxes
        file[f"{key}_size"] = np.array([[HEIGHT, WIDTH]])


def flat(file: Any) -> None:
    file["image_features"] = np.concatenate(VECTORS)
    file["image_bb"] = np.concatenate(BOXES)
    file["spatial_features"] = np.concatenate(SPATIAL)
    file["pos_boxes"] = np.stack([ENDS - COUNTS, ENDS], axis=1)
    file["ids"] = np.array(IDS, dtype="S8")


def flat_without_boxes_in_fractions(file: Any) -> None:
    flat(file)
    del file["spatial_features"]
    file["image_w"], file["image_h"] = [WIDTH] * 3, [HEIGHT] * 3


def write(path: Path, fill: Fill) -> Path:
    with h5py.File(path, "w") as file:
        fill(file)
    return path


@pytest.mark.parametrize("fill", [groups, names, flat, flat_without_boxes_in_fractions])
def test_each_layout_gives_the_same_regions(tmp_path: Path, fill: Fill) -> None:
    store = open_regions(write(tmp_path / "regions.hdf5", fill))
    assert sorted(store.keys()) == sorted(IDS)
    for key, photo, boxes in zip(IDS, VECTORS, FRACTIONS, strict=True):
        assert_regions(store.read(key), photo, boxes)


def test_as_many_regions_in_every_photo(tmp_path: Path) -> None:
    def fill(file: Any) -> None:
        file["image_features"] = np.stack([vectors(2, seed=row) for row in range(3)])
        file["image_bb"] = np.stack([FRACTIONS[0]] * 3)

    path = write(tmp_path / "val36.h5", fill)
    (tmp_path / "val36_imgid2idx.json").write_text(json.dumps({"9": 2, "7": 0, "8": 1}))
    store = open_regions(path)
    assert list(store.keys()) == ["7", "8", "9"]
    for row, key in enumerate(store.keys()):
        assert_regions(store.read(key), vectors(2, seed=row), FRACTIONS[0])


def test_threads_read_at_once(tmp_path: Path) -> None:
    store = open_regions(write(tmp_path / "regions.h5", flat))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: store.read(IDS[number % 3]), range(60)))
    for number, regions in enumerate(found):
        np.testing.assert_array_equal(regions.vectors, VECTORS[number % 3])


def test_labels_of_a_group(tmp_path: Path) -> None:
    def fill(file: Any) -> None:
        file["7/features"] = VECTORS[0]
        file["7/labels"] = np.array(["dog", "hot dog"], dtype="S8")

    store = open_regions(write(tmp_path / "regions.h5", fill))
    assert store.read("7").labels == ("dog", "hot dog")


def replaced(name: str, values: Any) -> Fill:
    def fill(file: Any) -> None:
        flat(file)
        del file[name]
        if values is not None:
            file[name] = values

    return fill


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        (lambda file: file.keys(), r"expected a group with 'features' a photo.*found \[\]"),
        (lambda file: file.create_group("7"), r"expected a group .*found \['7'\]"),
        (replaced("image_bb", np.zeros((8, 4))), "image_bb: expected 9 rows.*found 8"),
        (replaced("spatial_features", np.zeros((1, 6))), "spatial_features: expected 9 rows"),
        (replaced("pos_boxes", [[0, 2], [2, 6], [6, 10]]), r"row 2 has \[6, 10\]"),
        (replaced("pos_boxes", [[0, 2], [2, 2], [6, 9]]), r"row 1 has \[2, 2\]"),
        (replaced("pos_boxes", [0, 2, 6]), r"pos_boxes: expected shape \(photos, 2\)"),
        (replaced("pos_boxes", None), r"image_features: expected \(photos, regions, numbers\)"),
        (replaced("ids", np.array([b"7", b"8"])), "ids: expected each of the 3 rows once"),
        (replaced("ids", np.array([b"7", b"8", b"7"])), "ids: expected each of the 3 rows once"),
        (replaced("ids", None), r"nothing says which photo a row is.*regions_imgid2idx\.json"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, fill: Fill, reason: str) -> None:
    path = write(tmp_path / "regions.h5", fill)
    with pytest.raises(DataError, match=rf"regions\.h5: .*{reason}"):
        open_regions(path)


def test_a_group_without_features(tmp_path: Path) -> None:
    def fill(file: Any) -> None:
        groups(file)
        file["9/boxes"] = BOXES[0]

    store = open_regions(write(tmp_path / "regions.h5", fill))
    with pytest.raises(DataError, match=r"photo '9': lacks 'features', has \['boxes'\]"):
        store.read("9")


def test_what_is_no_hdf5(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"text")
    with pytest.raises(DataError, match=r"a\.h5: cannot be read as HDF5"):
        open_regions(tmp_path / "a.h5")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.h5", flat)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        ConfigError, match=r"needs the package h5py: pip install 'aladin-search\[hdf5\]'"
    ):
        open_regions(path)
