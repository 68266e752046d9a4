"""Every layout of regions: the same photos give the same vectors, boxes, labels and sizes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_network.errors import DataError
from aladin_network.photos.region_files import write_region_npz
from aladin_network.photos.regions import RegionSet
from aladin_training.data.regions import open_regions
from tests.training.data.regions.region_files import (
    Array,
    assert_regions,
    encoded,
    geometry,
    pixel_boxes,
    vectors,
    write_lines,
)

WIDTH, HEIGHT = 640, 480
COUNTS = {"184613": 2, "391895": 3, "522418": 1}
VECTORS = {key: vectors(count, seed=count) for key, count in COUNTS.items()}
BOXES = {key: pixel_boxes(count, WIDTH, HEIGHT, seed=count) for key, count in COUNTS.items()}
SIZE = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], dtype=np.float32)
LABELS = {key: tuple(f"thing {number}" for number in range(n)) for key, n in COUNTS.items()}


def whole(key: str) -> Array:
    """VinVL's vectors: appearance, then geometry."""
    return np.hstack([VECTORS[key], geometry(BOXES[key], WIDTH, HEIGHT)])


def objects(key: str, *, features: bool = False) -> dict[str, Any]:
    listed = [
        {"class": label, "rect": box, "conf": 0.5}
        | ({"feature": encoded(vector)} if features else {})
        for label, box, vector in zip(LABELS[key], BOXES[key].tolist(), VECTORS[key], strict=True)
    ]
    return {"objects": listed, "image_w": WIDTH, "image_h": HEIGHT}


def vinvl(key: str) -> list[str]:
    return [key, str(COUNTS[key]), encoded(VECTORS[key])]


def vinvl_json(key: str) -> list[str]:
    return [key, json.dumps({"num_boxes": COUNTS[key], "features": encoded(VECTORS[key])})]


def benchmark(key: str) -> list[str]:
    return [key, json.dumps(objects(key, features=True))]


def bottom_up(key: str) -> list[str]:
    size = [str(WIDTH), str(HEIGHT), str(COUNTS[key])]
    return [key, *size, encoded(BOXES[key]), encoded(VECTORS[key])]


def with_geometry(key: str) -> list[str]:
    return [key, str(COUNTS[key]), encoded(whole(key))]


def table(row: Callable[[str], list[str]], lineidx: bool = False) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        return write_lines(folder / "features.tsv", list(map(row, COUNTS)), lineidx=lineidx)

    return write


def parts(folder: Path) -> Path:
    for number, key in enumerate(COUNTS):
        write_lines(folder / f"karpathy.tsv.{number}", [bottom_up(key)])
    return folder / "karpathy.tsv.{0..2}"


def oscar(folder: Path) -> Path:
    table(with_geometry, lineidx=True)(folder)
    labels = [[key, json.dumps(objects(key))] for key in reversed(COUNTS)]
    write_lines(folder / "predictions.tsv", labels, lineidx=True)
    return folder


def npz(folder: Path) -> Path:
    for key in COUNTS:
        size = {"image_w": WIDTH, "image_h": HEIGHT}
        np.savez(folder / f"{key}.npz", features=VECTORS[key], boxes=BOXES[key], **size)  # pyright: ignore[reportArgumentType]
    (folder / "readme.txt").write_text("not regions")
    return folder


def extracted(folder: Path) -> Path:
    for key in COUNTS:
        found = RegionSet(
            VECTORS[key], BOXES[key] / SIZE, LABELS[key], (WIDTH, HEIGHT), "a detector"
        )
        write_region_npz(folder / f"{key}.npz", found)
    return folder


def npy(folder: Path) -> Path:
    for key in COUNTS:
        np.save(folder / f"{key}.npy", VECTORS[key])
    return folder


def two_folders(folder: Path, scale: Array | None = None) -> Path:
    for name in ("cocobu_att", "cocobu_box"):
        (folder / name).mkdir()
    for key in COUNTS:
        np.savez_compressed(folder / "cocobu_att" / key, feat=VECTORS[key])
        boxes = BOXES[key] / (SIZE if scale is None else scale)
        np.save(folder / "cocobu_box" / key, boxes)
    return folder


# How a layout is written, the vectors that it has, and what it says besides them.
LAYOUTS: dict[str, tuple[Callable[[Path], Path], Callable[[str], Array], set[str]]] = {
    "VinVL's table": (table(vinvl), VECTORS.__getitem__, set()),
    "VinVL's table with offsets": (table(vinvl, lineidx=True), VECTORS.__getitem__, set()),
    "OSCAR's table": (table(vinvl_json), VECTORS.__getitem__, set()),
    "OSCAR's table with offsets": (table(vinvl_json, lineidx=True), VECTORS.__getitem__, set()),
    "vectors that end in boxes": (table(with_geometry), whole, {"boxes"}),
    "predictions with features": (
        table(benchmark),
        VECTORS.__getitem__,
        {"boxes", "labels", "size"},
    ),
    "bottom-up attention's table": (table(bottom_up), VECTORS.__getitem__, {"boxes", "size"}),
    "parts of a table": (parts, VECTORS.__getitem__, {"boxes", "size"}),
    "a folder of OSCAR's": (oscar, whole, {"boxes", "labels", "size"}),
    "npz with boxes in pixels": (npz, VECTORS.__getitem__, {"boxes", "size"}),
    "npz that were extracted here": (
        extracted,
        VECTORS.__getitem__,
        {"boxes", "labels", "size", "detector"},
    ),
    "npy": (npy, VECTORS.__getitem__, set()),
    "boxes in a folder of their own": (two_folders, VECTORS.__getitem__, {"boxes"}),
}


@pytest.mark.parametrize(("write", "vectors_of", "says"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_gives_what_was_written(
    tmp_path: Path,
    write: Callable[[Path], Path],
    vectors_of: Callable[[str], Array],
    says: set[str],
) -> None:
    store = open_regions(write(tmp_path))
    assert (len(store), list(store.keys())) == (len(COUNTS), list(COUNTS))
    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(COUNTS, pool.map(store.read, COUNTS), strict=True))
    for key, each in found.items():
        assert_regions(each, vectors_of(key), BOXES[key] / SIZE if "boxes" in says else None)
        assert each.labels == (LABELS[key] if "labels" in says else ())
        assert each.size_px == ((WIDTH, HEIGHT) if "size" in says else None)
        assert each.detector == ("a detector" if "detector" in says else None)
    assert "1" not in store
    with pytest.raises(DataError, match="no regions of a photo '1'"):
        store.read("1")


@pytest.mark.parametrize("write", [table(vinvl), extracted, npy, oscar])
def test_a_copy_has_the_same_fingerprint_and_other_regions_another(
    tmp_path: Path, write: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "other"):
        (tmp_path / name).mkdir()
    path = write(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = tmp_path / "there" / path.relative_to(tmp_path / "here")
    assert open_regions(there).fingerprint == open_regions(path).fingerprint
    # Other vectors of as many bytes.
    for key in COUNTS:
        monkeypatch.setitem(VECTORS, key, -VECTORS[key])
    other = write(tmp_path / "other")
    for file in (tmp_path / "other").iterdir():
        assert file.stat().st_size == (tmp_path / "here" / file.name).stat().st_size
        os.utime(file, (20, 20))
    assert open_regions(other).fingerprint != open_regions(path).fingerprint


OBJECTS = [
    {"class": "dog", "rect": [0, 0, 10, 20]},
    {"class": "hot dog", "rect": [5.0, 5.0, 20.0, 40.0]},
]
RECTS = [each["rect"] for each in OBJECTS]
NAMES = [each["class"] for each in OBJECTS]
PX = {"image_w": 20, "image_h": 40}
FRACTIONS = np.array([[0.0, 0.0, 0.5, 0.5], [0.25, 0.125, 1.0, 1.0]], np.float32)


def write_labels(path: Path, value: object) -> Path:
    """Write the labels of photo 7, as a table or as one object."""
    if path.suffix == ".tsv":
        return write_lines(path, [["3", "[]"], ["7", json.dumps(value)]])
    path.write_text(json.dumps({"3": [], "7": value}))
    return path


@pytest.mark.parametrize("name", ["predictions.tsv", "labels.json"])
@pytest.mark.parametrize(
    ("value", "has_size"),
    [
        ({"objects": OBJECTS} | PX, True),
        ({"class": NAMES, "boxes": RECTS} | PX, True),
        ({"labels": NAMES, "boxes": RECTS} | PX, True),
        (NAMES, False),
        (OBJECTS, False),
        ({"class": NAMES}, False),
    ],
)
def test_labels_of_a_file_of_their_own_are_added_with_boxes_if_the_size_is_known(
    tmp_path: Path, name: str, value: Any, has_size: bool
) -> None:
    features = write_lines(tmp_path / "r.tsv", [["7", "2", encoded(VECTORS["184613"])]])
    found = open_regions(features, write_labels(tmp_path / name, value)).read("7")
    assert found.labels == ("dog", "hot dog")
    assert found.size_px == ((20, 40) if has_size else None)
    assert_regions(found, VECTORS["184613"], FRACTIONS if has_size else None)


def test_other_labels_have_another_fingerprint(tmp_path: Path) -> None:
    features = write_lines(tmp_path / "r.tsv", [["7", "2", encoded(vectors(2))]])
    first, again, other = (
        open_regions(features, write_labels(tmp_path / f"{name}.json", ["dog", label])).fingerprint
        for name, label in (("a", "cat"), ("b", "cat"), ("c", "cow"))
    )
    assert first == again
    assert len({first, other, open_regions(features).fingerprint}) == 3


def test_a_photo_without_labels_is_not_there(tmp_path: Path) -> None:
    rows = [["7", "1", encoded([1.0])], ["8", "1", encoded([2.0])]]
    features, labels = write_lines(tmp_path / "r.tsv", rows), tmp_path / "labels.json"
    labels.write_text('{"8": ["dog"]}')
    store = open_regions(features, labels)
    assert (list(store.keys()), "7" in store) == (["8"], False)
    labels.write_text('{"9": ["dog"]}')
    with pytest.raises(DataError, match=r"labels\.json: has labels of no photo of .*, e\.g\. '7'"):
        open_regions(features, labels)


def test_boxes_in_pixels_take_the_size_of_the_photo_from_the_labels(tmp_path: Path) -> None:
    two_folders(tmp_path, scale=np.ones(4, np.float32))
    with pytest.raises(DataError, match=r"184613\.npz: the boxes are in pixels and nothing says"):
        open_regions(tmp_path)
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps({key: objects(key) for key in COUNTS}))
    for key in COUNTS:
        found = open_regions(tmp_path, labels).read(key)
        assert_regions(found, VECTORS[key], BOXES[key] / SIZE)


def test_a_box_that_a_detector_rounded_is_clipped(tmp_path: Path) -> None:
    row = ["7", "1000", "1000", "1", encoded([0.0, -0.5, 1000.5, 500.0]), encoded([1.0])]
    found = open_regions(write_lines(tmp_path / "a.tsv", [row])).read("7")
    assert_regions(found, np.ones((1, 1)), np.array([[0, 0, 1, 0.5]], np.float32))
    assert found.boxes is not None and found.boxes.max() <= 1
