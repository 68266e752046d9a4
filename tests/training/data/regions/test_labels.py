"""Labels that lie apart from the vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_network.errors import DataError
from aladin_training.data.regions import open_regions
from tests.training.data.regions.region_files import assert_regions, encoded, vectors, write_lines

VECTORS = vectors(2, seed=3)
RECTS = [[0.0, 0.0, 10.0, 20.0], [5.0, 5.0, 20.0, 40.0]]
FRACTIONS = np.array([[0.0, 0.0, 0.5, 0.5], [0.25, 0.125, 1.0, 1.0]], np.float32)
SIZE = {"image_w": 20, "image_h": 40}
OBJECTS = [{"class": "dog", "rect": RECTS[0]}, {"class": "hot dog", "rect": RECTS[1]}]


@pytest.fixture
def features(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "regions.tsv", [["7", "2", encoded(VECTORS)]])


def write(path: Path, value: object) -> Path:
    """Write the labels of photo 7, as a table or as one object."""
    if path.suffix == ".tsv":
        return write_lines(path, [["3", "[]"], ["7", json.dumps(value)]])
    path.write_text(json.dumps({"3": [], "7": value}))
    return path


@pytest.mark.parametrize("name", ["predictions.tsv", "labels.json"])
@pytest.mark.parametrize(
    "value",
    [
        {"objects": OBJECTS} | SIZE,
        {"class": ["dog", "hot dog"], "boxes": RECTS} | SIZE,
        {"labels": ["dog", "hot dog"], "boxes": RECTS} | SIZE,
    ],
)
def test_labels_with_boxes(tmp_path: Path, features: Path, name: str, value: Any) -> None:
    found = open_regions(features, write(tmp_path / name, value)).read("7")
    assert found.labels == ("dog", "hot dog")
    assert found.size_px == (20, 40)
    assert_regions(found, VECTORS, FRACTIONS)


@pytest.mark.parametrize("name", ["predictions.tsv", "labels.json"])
@pytest.mark.parametrize("value", [["dog", "hot dog"], OBJECTS, {"class": ["dog", "hot dog"]}])
def test_labels_without_the_size_of_the_photo(
    tmp_path: Path, features: Path, name: str, value: Any
) -> None:
    found = open_regions(features, write(tmp_path / name, value)).read("7")
    assert found.labels == ("dog", "hot dog")
    assert_regions(found, VECTORS, None)


@pytest.mark.parametrize("name", ["predictions.tsv", "labels.json"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (["dog"], r"expected 2 labels, as regions\.tsv has regions, found 1"),
        ("dog hot dog", "expected the list of a photo's objects, found 'dog hot dog'"),
        ({"names": []}, r"expected 'objects', 'class' or 'labels', found \['names'\]"),
        ({"objects": 4}, "objects: expected a list, found 4"),
        ({"class": "dog"}, "class: expected a list of names, found 'dog'"),
        ([1, 2], "expected the name of a class, found 1"),
        ([{"rect": [0, 0, 1, 1]}], r"objects\[0\] lacks 'class', has \['rect'\]"),
        (
            {"class": ["a", "b"], "boxes": [[0, 0, 1, 1]]},
            r"boxes: expected shape \(2, 4\), found \(1, 4\)",
        ),
        ({"class": ["a", "b"], "boxes": "x"}, "boxes: expected four numbers a box"),
        ({"class": ["a", "b"], "image_w": 4}, "image_h: expected a whole number .* found None"),
    ],
)
def test_labels_that_cannot_be_used(
    tmp_path: Path, features: Path, name: str, value: Any, reason: str
) -> None:
    path = write(tmp_path / name, value)
    with pytest.raises(DataError, match=rf"{path.name}(:2)?: photo '7': {reason}"):
        open_regions(features, path).read("7")


def test_a_photo_without_labels_is_not_there(tmp_path: Path) -> None:
    features = write_lines(
        tmp_path / "regions.tsv",
        [["7", "1", encoded([1.0])], ["8", "1", encoded([2.0])]],
    )
    labels = tmp_path / "labels.json"
    labels.write_text('{"8": ["dog"]}')
    store = open_regions(features, labels)
    assert list(store.keys()) == ["8"]
    assert "7" not in store
    with pytest.raises(DataError, match=r"regions\.tsv: no regions of a photo '7'"):
        store.read("7")
    labels.write_text('{"9": ["dog"]}')
    with pytest.raises(DataError, match=r"labels\.json: has labels of no photo of .*, e\.g\. '7'"):
        open_regions(features, labels)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("labels.json", "[1]", "expected a JSON object with the ids of photos as keys"),
        ("labels.json", "{", r"not JSON \("),
        ("labels.pt", "x", r"expected labels of regions as \.tsv or \.json"),
        ("labels.tsv", "7\ta\tb\n", "photo '7': expected an id and JSON, found 3 columns"),
        ("labels.tsv", "7\t{\n", r"photo '7': not JSON \("),
    ],
)
def test_files_that_hold_no_labels(
    tmp_path: Path, features: Path, name: str, content: str, reason: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=rf"{name}.*: {reason}"):
        open_regions(features, tmp_path / name).read("7")


def test_other_labels_have_another_fingerprint(tmp_path: Path, features: Path) -> None:
    first = open_regions(features, write(tmp_path / "a.json", ["dog", "cat"])).fingerprint
    again = open_regions(features, write(tmp_path / "b.json", ["dog", "cat"])).fingerprint
    other = open_regions(features, write(tmp_path / "b.json", ["dog", "cow"])).fingerprint
    assert first == again
    assert len({first, other, open_regions(features).fingerprint}) == 3
