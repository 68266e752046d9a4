"""Regions and labels that cannot be used: one error with file, line and photo."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_network.errors import DataError
from aladin_training.data.regions import open_regions
from aladin_training.data.regions.folder import open_folder
from tests.training.data.regions.region_files import encoded, geometry, vectors, write_lines

GOOD = ["1", "1", encoded([1.0, 2.0])]
PX = ["7", "9", "9", "1"]


def _found(**fields: Any) -> list[str]:
    return ["7", json.dumps(fields)]


# The only line of a table, which is of photo 7.
LINES: list[tuple[list[str], str]] = [
    (["7", "2"], "expected 'features' with 'num_boxes'"),
    (["7", "x", "1", "2"], r"expected a table of regions with 2, 3, 6 columns, found 4"),
    (["7", "no", encoded([1.0])], "num_boxes: expected a whole number of at least 1, found b'no'"),
    (["7", "0", encoded([1.0])], "num_boxes: expected a whole number of at least 1, found 0"),
    (["7", "2", "%%%%"], r"features: expected base64 \("),
    (["7", "2", encoded([1.0, 2.0, 3.0])], "features: .* 2 boxes, .* 8 bytes, found 12 bytes"),
    (["7", "1", ""], "features: expected float32 of 1 boxes, a multiple of 4 bytes, found 0"),
    (["7", "{"], r"not JSON \("),
    (["7", "[]"], "expected 'features' with 'num_boxes'"),
    (_found(features="AAAA"), "num_boxes: expected a whole number of at least 1, found None"),
    (_found(features=3, num_boxes=1), "features: expected base64, found 3"),
    (_found(objects=[]), "objects: expected at least one"),
    (
        _found(objects=[{"class": "dog", "rect": [0, 0, 1, 1]}]),
        r"objects\[0\] lacks 'feature'; a file of labels goes with a file of features",
    ),
    (
        _found(
            objects=[
                {"class": "a", "feature": encoded([1.0, 2.0])},
                {"class": "b", "feature": encoded([1.0])},
            ]
        ),
        r"objects\[1\]\.feature: expected 2 numbers, found 1",
    ),
    ([*PX, encoded([0.0, 0.0, 4.0]), encoded([1.0])], r"boxes: .* \(1, 4\), found \(1, 3\)"),
    (
        [*PX, encoded([0.0, 0.0, 12.0, 4.0]), encoded([1.0])],
        r"boxes: expected inside of the photo's 9 x 9 px, region 0 has \[0.0, 0.0, 12.0, 4.0\]",
    ),
    ([*PX, encoded([4.0, 4.0, 2.0, 6.0]), encoded([1.0])], "boxes: expected with x0 <= x1"),
    (["7", "9", "", "1", encoded([0.0] * 4), encoded([1.0])], "image_h: expected a whole number"),
]


@pytest.mark.parametrize(("row", "reason"), LINES)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, row: list[str], reason: str) -> None:
    path = write_lines(tmp_path / "a.tsv", [row])
    with pytest.raises(DataError, match=rf"a\.tsv:1: photo '7': {reason}") as failure:
        open_regions(path).read("7")
    assert (failure.value.file, failure.value.line) == (path, 1)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (["8", "1", encoded([1.0])], r"expected vectors of shape \(regions, 2\).*found \(1, 1\)"),
        (["8", "1"], "expected 3 columns, as on line 1, found 2"),
        (["8", "1", encoded([1.0, np.nan])], "vectors: expected finite numbers"),
        (["8", "1", encoded([1.0, np.inf])], "vectors: expected finite numbers"),
    ],
)
def test_a_line_unlike_the_first_is_named(tmp_path: Path, second: list[str], reason: str) -> None:
    store = open_regions(write_lines(tmp_path / "a.tsv", [GOOD, second]))
    assert len(store.read("1")) == 1
    with pytest.raises(DataError, match=rf"a\.tsv:2: photo '8': {reason}"):
        store.read("8")


def test_a_photo_without_the_geometry_that_the_first_has_is_named(tmp_path: Path) -> None:
    box = np.array([[1, 1, 4, 4]], np.float32)
    first = np.hstack([vectors(1), geometry(box, 9, 9)])
    rows = [["1", "1", encoded(first)], ["2", "2", encoded(vectors(2, 11, seed=5))]]
    store = open_regions(write_lines(tmp_path / "a.tsv", rows))
    with pytest.raises(DataError, match=r"a\.tsv:2: photo '2': expected the boxes in the last 6"):
        store.read("2")


def test_one_photo_in_two_tables_is_refused(tmp_path: Path) -> None:
    for number in range(2):
        write_lines(tmp_path / f"a.tsv.{number}", [GOOD])
    with pytest.raises(DataError, match=r"tsv\.1: the photo '1' is in .*tsv\.0, too"):
        open_regions(tmp_path / "a.tsv.*")


@pytest.mark.parametrize("name", ["l.tsv", "l.json"])
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
        ({"class": ["a", "b"], "boxes": [[0, 0, 1, 1]]}, r"boxes: .* \(2, 4\), found \(1, 4\)"),
        ({"class": ["a", "b"], "boxes": "x"}, "boxes: expected four numbers a box"),
        ({"class": ["a", "b"], "image_w": 4}, "image_h: expected a whole number .* found None"),
        (
            {"class": ["a", "b"], "boxes": [[0, 0, 9, 11]] * 2, "image_w": 10, "image_h": 10},
            "boxes: expected inside",
        ),
    ],
)
def test_labels_that_cannot_be_used_are_named(
    tmp_path: Path, name: str, value: Any, reason: str
) -> None:
    features = write_lines(tmp_path / "regions.tsv", [["7", "2", encoded(vectors(2))]])
    text = json.dumps(value)
    (tmp_path / name).write_text(f"7\t{text}\n" if name == "l.tsv" else f'{{"7": {text}}}')
    with pytest.raises(DataError, match=rf"{name}(:1)?: photo '7': {reason}"):
        open_regions(features, tmp_path / name).read("7")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("labels.json", "[1]", "expected a JSON object with the ids of photos as keys"),
        ("labels.json", "{", r"not JSON \("),
        ("labels.pt", "x", r"expected labels of regions as \.tsv or \.json"),
        ("labels.tsv", "1\ta\tb\n", "photo '1': expected an id and JSON, found 3 columns"),
        ("labels.tsv", "1\t{\n", r"photo '1': not JSON \("),
    ],
)
def test_files_that_hold_no_labels_are_refused(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    (tmp_path / name).write_text(content)
    features = write_lines(tmp_path / "r.tsv", [GOOD])
    with pytest.raises(DataError, match=rf"{name}.*: {reason}"):
        open_regions(features, tmp_path / name).read("1")


def _save(name: str, values: Any) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / name, values, allow_pickle=True)


def _raw(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def _twice(folder: Path) -> None:
    np.save(folder / "1.npy", vectors(2))
    np.savez(folder / "1.npz", features=vectors(2))


def _without_boxes(folder: Path) -> None:
    for name in ("c_att", "c_box"):
        (folder / name).mkdir()
    np.savez(folder / "c_att" / "1.npz", vectors(1))


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda folder: None, r"holds no \.npz and no \.npy"),  # noqa: ARG005
        (_raw("1.npy", b""), r"1\.npy: expected an array of numbers"),
        (_raw("1.npy", b"\x93NUMPY garbage"), r"1\.npy: expected an array of numbers"),
        (_raw("1.npz", b"not a zip"), r"1\.npz: cannot be read as an npz file"),
        # A pickle is never loaded.
        (_save("1.npy", np.array([{}], dtype=object)), r"1\.npy: .* numbers \(Object arrays"),
        (_save("1.npy", np.zeros(4)), r"1\.npy: expected vectors of shape \(regions, "),
        (_save("1.npy", np.zeros((2, 3, 4))), r"1\.npy: expected vectors of shape \(regions, "),
        (_save("1.npy", np.zeros((0, 4))), r"1\.npy: expected vectors of shape \(regions, "),
        (_twice, r"1\.npz: there is 1\.npy, too"),
        (_without_boxes, r"1\.npz: expected the boxes of '1' in a '_box' folder"),
    ],
)
def test_folders_that_cannot_be_used_are_refused(
    tmp_path: Path, write: Callable[[Path], None], reason: str
) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=reason):
        open_regions(tmp_path).read("1")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (OSError("of no kind that the system knows"), "cannot be read"),
    ],
)
def test_what_the_system_does_not_let_read_is_named_with_its_reason(
    suffix: str, error: OSError, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise error

    for name in ("c_att", "c_box"):
        (tmp_path / name).mkdir()
        values = np.ones((1, 4))
        file = tmp_path / name / f"1{suffix}"
        np.save(file, values) if suffix == ".npy" else np.savez(file, values)
    store = open_folder(tmp_path)
    for patched, at, path in (
        (np, "load", tmp_path / "c_att" / f"1{suffix}"),
        (os, "scandir", tmp_path),
        (Path, "glob", tmp_path),
    ):
        with monkeypatch.context() as patch, pytest.raises(DataError) as caught:
            patch.setattr(patched, at, refused)
            _ = store.read("1") if patched is np else open_folder(tmp_path)
        assert str(caught.value) == f"{path}: {reason}"
