"""VinVL's, OSCAR's, scene_graph_benchmark's and bottom-up attention's tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_network.errors import DataError
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
COUNTS = {"391895": 3, "522418": 1, "184613": 2}
VECTORS = {key: vectors(count, seed=count) for key, count in COUNTS.items()}
BOXES = {key: pixel_boxes(count, WIDTH, HEIGHT, seed=count) for key, count in COUNTS.items()}
SIZE = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], dtype=np.float32)


def whole(key: str) -> Array:
    """VinVL's vectors: appearance, then geometry."""
    return np.hstack([VECTORS[key], geometry(BOXES[key], WIDTH, HEIGHT)])


def objects(key: str, *, features: bool = False, size: bool = True) -> dict[str, Any]:
    listed = [
        {"class": f"thing {number}", "rect": box, "conf": 0.5}
        | ({"feature": encoded(vector)} if features else {})
        for number, (box, vector) in enumerate(zip(BOXES[key].tolist(), VECTORS[key], strict=True))
    ]
    return {"objects": listed} | ({"image_w": WIDTH, "image_h": HEIGHT} if size else {})


def vinvl(key: str) -> list[str]:
    return [key, str(COUNTS[key]), encoded(VECTORS[key])]


def vinvl_json(key: str) -> list[str]:
    data = {"num_boxes": COUNTS[key], "features": encoded(VECTORS[key])}
    return [key, json.dumps(data)]


def benchmark(key: str) -> list[str]:
    return [key, json.dumps(objects(key, features=True))]


def bottom_up(key: str) -> list[str]:
    size = [str(WIDTH), str(HEIGHT), str(COUNTS[key])]
    return [key, *size, encoded(BOXES[key]), encoded(VECTORS[key])]


@pytest.mark.parametrize("row", [vinvl, vinvl_json])
@pytest.mark.parametrize("lineidx", [True, False])
def test_vectors_alone(tmp_path: Path, row: Callable[[str], list[str]], lineidx: bool) -> None:
    path = write_lines(tmp_path / "features.tsv", [row(key) for key in COUNTS], lineidx=lineidx)
    store = open_regions(path)
    assert list(store.keys()) == list(COUNTS)
    for key in COUNTS:
        assert_regions(store.read(key), VECTORS[key], None)


@pytest.mark.parametrize("row", [benchmark, bottom_up])
def test_boxes_beside_the_vectors(tmp_path: Path, row: Callable[[str], list[str]]) -> None:
    store = open_regions(write_lines(tmp_path / "a.tsv", [row(key) for key in COUNTS]))
    for key in COUNTS:
        found = store.read(key)
        assert_regions(found, VECTORS[key], BOXES[key] / SIZE)
        assert found.size_px == (WIDTH, HEIGHT)
    assert store.read("391895").labels == (
        ("thing 0", "thing 1", "thing 2") if row is benchmark else ()
    )


def test_the_folder_of_a_task_of_oscar(tmp_path: Path) -> None:
    rows = [[key, str(COUNTS[key]), encoded(whole(key))] for key in COUNTS]
    write_lines(tmp_path / "features.tsv", rows, lineidx=True)
    labels = [[key, json.dumps(objects(key))] for key in reversed(COUNTS)]
    write_lines(tmp_path / "predictions.tsv", labels, lineidx=True)
    store = open_regions(tmp_path)
    for key in COUNTS:
        found = store.read(key)
        assert_regions(found, whole(key), BOXES[key] / SIZE)
        assert found.labels == tuple(f"thing {number}" for number in range(COUNTS[key]))
        assert found.size_px == (WIDTH, HEIGHT)


def test_vectors_that_end_in_their_geometry_tell_the_boxes(tmp_path: Path) -> None:
    rows = [[key, str(COUNTS[key]), encoded(whole(key))] for key in COUNTS]
    store = open_regions(write_lines(tmp_path / "features.tsv", rows))
    for key in COUNTS:
        assert_regions(store.read(key), whole(key), BOXES[key] / SIZE)


def test_a_photo_without_the_geometry_that_the_first_has(tmp_path: Path) -> None:
    rows = [["1", "3", encoded(whole("391895"))], ["2", "2", encoded(vectors(2, 11, seed=5))]]
    store = open_regions(write_lines(tmp_path / "features.tsv", rows))
    expected = r"features\.tsv:2: photo '2': expected the boxes in the last 6"
    with pytest.raises(DataError, match=expected):
        store.read("2")


def test_tables_are_joined_by_a_pattern(tmp_path: Path) -> None:
    for number, key in enumerate(COUNTS):
        write_lines(tmp_path / f"karpathy.tsv.{number}", [bottom_up(key)])
    store = open_regions(tmp_path / "karpathy.tsv.{0..2}")
    assert list(store.keys()) == list(COUNTS)
    assert len(store) == 3
    for key in COUNTS:
        assert_regions(store.read(key), VECTORS[key], BOXES[key] / SIZE)
    with pytest.raises(DataError, match="no regions of a photo '1'"):
        store.read("1")
    write_lines(tmp_path / "karpathy.tsv.3", [bottom_up("391895")])
    with pytest.raises(DataError, match=r"tsv\.3: the photo '391895' is in .*tsv\.0, too"):
        open_regions(tmp_path / "karpathy.tsv.*")


BROKEN: list[tuple[list[str], str]] = [
    (["7", "2"], "expected 'features' with 'num_boxes'"),
    (["7", "x", "1", "2"], r"expected a table of regions with 2, 3, 6 columns, found 4"),
    (["7", "no", encoded([1.0])], "num_boxes: expected a whole number of at least 1, found b'no'"),
    (["7", "0", encoded([1.0])], "num_boxes: expected a whole number of at least 1, found 0"),
    (["7", "2", "%%%%"], r"features: expected base64 \("),
    (
        ["7", "2", encoded([1.0, 2.0, 3.0])],
        "features: expected float32 of 2 boxes, a multiple of 8 bytes, found 12 bytes",
    ),
    (["7", "1", ""], "features: expected float32 of 1 boxes, a multiple of 4 bytes, found 0"),
    (["7", "{"], r"not JSON \("),
    (["7", "[]"], "expected 'features' with 'num_boxes'"),
    (["7", '{"features": "AAAA"}'], "num_boxes: expected a whole number of at least 1, found None"),
    (["7", '{"features": 3, "num_boxes": 1}'], "features: expected base64, found 3"),
    (["7", '{"objects": []}'], "objects: expected at least one"),
    (
        ["7", '{"objects": [{"class": "dog", "rect": [0, 0, 1, 1]}]}'],
        r"objects\[0\] lacks 'feature'; a file of labels goes with a file of features",
    ),
    (
        [
            "7",
            json.dumps(
                {
                    "objects": [
                        {"class": "a", "feature": encoded([1.0, 2.0])},
                        {"class": "b", "feature": encoded([1.0])},
                    ]
                }
            ),
        ],
        r"objects\[1\]\.feature: expected 2 numbers, found 1",
    ),
    (
        ["7", "9", "9", "1", encoded([0.0, 0.0, 4.0]), encoded([1.0])],
        r"boxes: expected shape \(1, 4\), found \(1, 3\)",
    ),
    (
        ["7", "9", "9", "1", encoded([0.0, 0.0, 12.0, 4.0]), encoded([1.0])],
        r"boxes: expected inside of the photo's 9 x 9 px, region 0 has \[0.0, 0.0, 12.0, 4.0\]",
    ),
    (["7", "9", "", "1", encoded([0.0] * 4), encoded([1.0])], "image_h: expected a whole number"),
]


@pytest.mark.parametrize(("row", "reason"), BROKEN)
def test_a_line_that_cannot_be_used(tmp_path: Path, row: list[str], reason: str) -> None:
    path = write_lines(tmp_path / "a.tsv", [row])
    with pytest.raises(DataError, match=rf"a\.tsv:1: photo '7': {reason}") as failure:
        open_regions(path).read("7")
    assert failure.value.file == path
    assert failure.value.line == 1


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (["8", "1", encoded([1.0])], r"expected vectors of shape \(regions, 2\).*found \(1, 1\)"),
        (["8", "1"], "expected 3 columns, as on line 1, found 2"),
        (["8", "1", encoded([1.0, np.nan])], "vectors: expected finite numbers"),
        (["8", "1", encoded([1.0, np.inf])], "vectors: expected finite numbers"),
    ],
)
def test_a_line_unlike_the_first(tmp_path: Path, second: list[str], reason: str) -> None:
    store = open_regions(write_lines(tmp_path / "a.tsv", [["7", "1", encoded([1.0, 2.0])], second]))
    assert len(store.read("7")) == 1
    with pytest.raises(DataError, match=rf"a\.tsv:2: photo '8': {reason}"):
        store.read("8")


def test_boxes_that_are_upside_down(tmp_path: Path) -> None:
    row = ["7", "9", "9", "1", encoded([4.0, 4.0, 2.0, 6.0]), encoded([1.0])]
    with pytest.raises(DataError, match=r"a\.tsv:1: photo '7': boxes: expected with x0 <= x1"):
        open_regions(write_lines(tmp_path / "a.tsv", [row])).read("7")


def test_a_box_that_a_detector_rounded_is_clipped(tmp_path: Path) -> None:
    row = ["7", "1000", "1000", "1", encoded([0.0, -0.5, 1000.5, 500.0]), encoded([1.0])]
    found = open_regions(write_lines(tmp_path / "a.tsv", [row])).read("7")
    assert_regions(found, np.ones((1, 1)), np.array([[0, 0, 1, 0.5]], np.float32))
    assert found.boxes is not None and found.boxes.max() <= 1


def test_boxes_of_the_labels_that_leave_the_photo(tmp_path: Path) -> None:
    features = write_lines(tmp_path / "a.tsv", [["7", "1", encoded([1.0])]])
    found = {"class": ["x"], "boxes": [[0, 0, 9, 11]], "image_w": 10, "image_h": 10}
    labels = write_lines(tmp_path / "labels.tsv", [["7", json.dumps(found)]])
    with pytest.raises(DataError, match=r"labels\.tsv: photo '7': boxes: expected inside"):
        open_regions(features, labels)
