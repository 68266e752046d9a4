"""One file a photo."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_network.errors import DataError
from aladin_network.photos.region_files import write_region_npz
from aladin_network.photos.regions import RegionSet
from aladin_training.data.regions import open_regions
from aladin_training.data.regions.folder import open_folder
from tests.training.data.regions.region_files import (
    assert_regions,
    geometry,
    pixel_boxes,
    vectors,
)

COUNTS = {"1": 2, "12": 3}


def test_npz_with_boxes_in_pixels(tmp_path: Path) -> None:
    for key, count in COUNTS.items():
        boxes = pixel_boxes(count, 50, 80)
        np.savez(
            tmp_path / f"{key}.npz",
            features=vectors(count, seed=count),
            boxes=boxes,
            image_w=50,
            image_h=80,
        )
    (tmp_path / "readme.txt").write_text("not regions")
    store = open_regions(tmp_path)
    assert list(store.keys()) == ["1", "12"]
    for key, count in COUNTS.items():
        boxes = pixel_boxes(count, 50, 80)
        expected = vectors(count, seed=count)
        assert_regions(store.read(key), expected, boxes / np.array([50, 80, 50, 80]))


def test_files_that_were_extracted_here_are_read_as_they_were(tmp_path: Path) -> None:
    boxes = pixel_boxes(2, 1, 1)
    whole = np.hstack([vectors(2), geometry(boxes, 1, 1)])
    written = RegionSet(whole, boxes, ("a", "b"), (30, 20), "a detector")
    write_region_npz(tmp_path / "train2014%2F1.npz", written)
    found = open_regions(tmp_path).read("train2014/1")
    assert_regions(found, whole, boxes)
    assert (found.labels, found.size_px, found.detector) == (("a", "b"), (30, 20), "a detector")


def test_npy_of_vectors_alone(tmp_path: Path) -> None:
    for key, count in COUNTS.items():
        np.save(tmp_path / f"{key}.npy", vectors(count, seed=count).astype(np.float16))
    store = open_regions(tmp_path)
    for key, count in COUNTS.items():
        half = vectors(count, seed=count).astype(np.float16)
        assert_regions(store.read(key), half.astype(np.float32), None)


def write_pair(folder: Path, scale: float) -> None:
    for name in ("cocobu_att", "cocobu_box"):
        (folder / name).mkdir()
    for key, count in COUNTS.items():
        np.savez_compressed(folder / "cocobu_att" / key, feat=vectors(count, seed=count))
        np.save(folder / "cocobu_box" / key, pixel_boxes(count, 1, 1) * scale)


def test_vectors_and_boxes_in_folders_of_their_own(tmp_path: Path) -> None:
    write_pair(tmp_path, scale=1.0)
    store = open_regions(tmp_path)
    for key, count in COUNTS.items():
        assert_regions(store.read(key), vectors(count, seed=count), pixel_boxes(count, 1, 1))
    (tmp_path / "cocobu_box" / "12.npy").unlink()
    with pytest.raises(DataError, match=r"12\.npz: expected the boxes of '12' in a '_box' folder"):
        open_regions(tmp_path).read("12")


def test_boxes_in_pixels_need_the_size_of_the_photo(tmp_path: Path) -> None:
    write_pair(tmp_path, scale=100.0)
    with pytest.raises(DataError, match=r"1\.npz: the boxes are in pixels and nothing says"):
        open_regions(tmp_path)
    labels = tmp_path / "labels.json"
    photos = {
        key: {"class": ["x"] * count, "image_w": 100, "image_h": 200}
        for key, count in COUNTS.items()
    }
    labels.write_text(str(photos).replace("'", '"'))
    found = open_regions(tmp_path, labels).read("1")
    boxes = pixel_boxes(2, 1, 1) * 100.0
    assert_regions(found, vectors(2, seed=2), boxes / np.array([100, 200, 100, 200]))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("1.npy", b"", "expected an array of numbers"),
        ("1.npy", b"\x93NUMPY garbage", "expected an array of numbers"),
        ("1.npz", b"not a zip", "cannot be read as an npz file"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: {reason}"):
        open_regions(tmp_path)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"1\.npy: expected an array of numbers \(Object arrays"):
        open_regions(tmp_path)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (0, 4)])
def test_an_array_of_another_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "1.npy", np.zeros(shape, np.float32))
    with pytest.raises(DataError, match=r"1\.npy: expected vectors of shape \(regions, "):
        open_regions(tmp_path).read("1")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_regions_that_were_extracted_anew_have_another_fingerprint(
    tmp_path: Path, suffix: str
) -> None:
    """Other vectors of as many bytes."""

    def write(seed: int) -> None:
        for number in range(3):
            file = tmp_path / f"{number}{suffix}"
            content = vectors(2, seed=seed + number)
            if suffix == ".npy":
                np.save(file, content)
            else:
                write_region_npz(file, RegionSet(content, None, (), None, None))
            os.utime(file, (seed, seed))

    write(10)
    first = open_regions(tmp_path).fingerprint
    sizes = [file.stat().st_size for file in sorted(tmp_path.iterdir())]
    assert open_regions(tmp_path).fingerprint == first
    write(20)
    assert [file.stat().st_size for file in sorted(tmp_path.iterdir())] == sizes
    assert open_regions(tmp_path).fingerprint != first


def test_a_copy_with_its_times_has_the_same_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    np.save(tmp_path / "here" / "1.npy", vectors(2))
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    here, there = (open_regions(tmp_path / name).fingerprint for name in ("here", "there"))
    assert here == there


def test_two_files_of_one_photo(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", vectors(2))
    np.savez(tmp_path / "1.npz", features=vectors(2))
    with pytest.raises(DataError, match=r"1\.npz: there is 1\.npy, too"):
        open_regions(tmp_path)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no \.npz and no \.npy"):
        open_regions(tmp_path)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_an_unreadable_file_is_named_with_the_systems_reason(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cocobu_att"
    folder.mkdir()
    (tmp_path / "cocobu_box").mkdir()
    file = folder / f"1{suffix}"
    for each in (folder, tmp_path / "cocobu_box"):
        values = vectors(2) if each == folder else pixel_boxes(2, 50, 80)
        if suffix == ".npy":
            np.save(each / "1.npy", values)
        else:
            np.savez(each / "1.npz", values)
    store = open_folder(tmp_path)
    load = np.load

    def refused(path: Path, **options: Any) -> Any:
        if path == file:
            raise PermissionError(13, "Permission denied", str(path))
        return load(path, **options)

    monkeypatch.setattr(np, "load", refused)
    with pytest.raises(DataError) as caught:
        store.read("1")
    assert str(caught.value) == f"{file}: Permission denied"

    def nameless(*_: Any, **__: Any) -> Any:
        raise OSError("of no kind that the system knows")

    monkeypatch.setattr(np, "load", nameless)
    with pytest.raises(DataError) as caught:
        store.read("1")
    assert str(caught.value) == f"{file}: cannot be read"


def test_an_unreadable_folder_is_named_with_the_systems_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "1.npy", vectors(2))
    scan = os.scandir

    def refused(path: Path | str) -> Any:
        if Path(path) == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refused)
        with pytest.raises(DataError) as caught:
            open_folder(tmp_path)
    assert str(caught.value) == f"{tmp_path}: Permission denied"

    def nameless(_: Path | str) -> Any:
        raise OSError("of no kind that the system knows")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", nameless)
        patch.setattr(Path, "glob", lambda *_: iter(()))
        with pytest.raises(DataError) as caught:
            open_folder(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read"


def test_an_unreadable_folder_around_two_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, _: str) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "glob", refused)
    with pytest.raises(DataError) as caught:
        open_folder(tmp_path)
    assert str(caught.value) == f"{tmp_path}: Permission denied"
