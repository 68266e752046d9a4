"""SCAN's precomp folders, as data sets and as regions."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from aladin_network.errors import DataError
from aladin_training.data import read_records
from aladin_training.data.regions import open_regions, region_key

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)


def write(
    folder: Path,
    split: str,
    images: np.ndarray = IMAGES,
    captions: int = 20,
    ids: list[str] | None = None,
) -> Path:
    np.save(folder / f"{split}_ims.npy", images)
    lines = "".join(f"caption {number}\n" for number in range(captions))
    (folder / f"{split}_caps.txt").write_text(lines)
    if ids is not None:
        (folder / f"{split}_ids.txt").write_text("\n".join(ids) + "\n")
    return folder


def five(photo: int) -> tuple[str, ...]:
    return tuple(f"caption {number}" for number in range(photo * 5, photo * 5 + 5))


def test_a_row_a_photo(tmp_path: Path) -> None:
    write(tmp_path, "train", ids=["11", "22", "33", "44"])
    write(tmp_path, "dev", IMAGES[:2] + 1, captions=10)
    train = read_records(tmp_path, "train", require_photos=False)
    assert [record.id for record in train] == ["train/11", "train/22", "train/33", "train/44"]
    assert [record.captions for record in train] == [five(photo) for photo in range(4)]
    validation = read_records(tmp_path, "val", require_photos=False)
    assert [record.id for record in validation] == ["dev/0", "dev/1"]
    store = open_regions(tmp_path)
    assert len(store) == 6
    for row, record in enumerate(train):
        np.testing.assert_array_equal(store.read(region_key(record, store)).vectors, IMAGES[row])
    for row, record in enumerate(validation):
        found = store.read(region_key(record, store))
        np.testing.assert_array_equal(found.vectors, IMAGES[row] + 1)
        assert found.boxes is None


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (None, ["0", "1", "2", "3"]),
        ([str(row // 5 + 70) for row in range(20)], ["70", "71", "72", "73"]),
        # One of its own for each caption: these are no ids of photos.
        ([str(row + 70) for row in range(20)], ["0", "1", "2", "3"]),
    ],
)
def test_rows_that_stand_there_once_a_caption(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ids: list[str] | None, names: list[str]
) -> None:
    write(tmp_path, "test", np.repeat(IMAGES, 5, axis=0), ids=ids)
    with caplog.at_level(logging.INFO):
        records = read_records(tmp_path, "test", require_photos=False)
    assert "20 rows for 20 captions: each photo's row is there 5 times, one is read" in caplog.text
    assert [record.id for record in records] == [f"test/{name}" for name in names]
    assert [record.captions for record in records] == [five(photo) for photo in range(4)]
    store = open_regions(tmp_path)
    for row, record in enumerate(records):
        np.testing.assert_array_equal(store.read(record.id).vectors, IMAGES[row])


def test_as_many_photos_as_captions_are_a_photo_each(tmp_path: Path) -> None:
    images = np.random.default_rng(1).normal(size=(20, 3, 5)).astype(np.float32)
    records = read_records(write(tmp_path, "test", images), "test", require_photos=False)
    assert [record.captions for record in records] == [(f"caption {row}",) for row in range(20)]
    np.testing.assert_array_equal(open_regions(tmp_path).read("test/19").vectors, images[19])
    with pytest.raises(DataError, match=r"test_caps\.txt: no such photo: .*test/0"):
        read_records(tmp_path)  # as for networks that read photos


@pytest.mark.parametrize(
    ("images", "captions", "ids", "reason"),
    [
        (IMAGES, 19, None, r"train_caps\.txt: .* the 4 rows of train_ims\.npy; found 19 lines"),
        (IMAGES, 0, None, r"train_caps\.txt: .*found 0 lines"),
        (IMAGES, b"\xff\n", None, r"train_caps\.txt: not UTF-8 at byte 1"),
        (IMAGES, None, None, r"train_caps\.txt: No such file"),
        (IMAGES, 20, ["1", "2"], r"train_ids\.txt: expected an id for each of 4 .* 20 .* found 2"),
        (IMAGES, 20, ["1", "2", "2", "4"], r"train_ids\.txt: expected an id of its own .* '2'"),
        (IMAGES[0], 15, None, r"train_ims\.npy: expected an array .*found \(3, 5\)"),
        (IMAGES[:0], 20, None, r"train_ims\.npy: expected an array .*found \(0, 3, 5\)"),
        (b"garbage", 20, None, r"train_ims\.npy: expected an array of numbers"),
    ],
)
def test_files_that_are_damaged_or_do_not_fit_together_are_refused(
    tmp_path: Path,
    images: np.ndarray | bytes,
    captions: int | bytes | None,
    ids: list[str] | None,
    reason: str,
) -> None:
    write(tmp_path, "train", ids=ids, captions=captions if isinstance(captions, int) else 20)
    if isinstance(images, bytes):
        (tmp_path / "train_ims.npy").write_bytes(images)
    else:
        np.save(tmp_path / "train_ims.npy", images)
    if isinstance(captions, bytes):
        (tmp_path / "train_caps.txt").write_bytes(captions)
    elif captions is None:
        (tmp_path / "train_caps.txt").unlink()
    with pytest.raises(DataError, match=reason):
        read_records(tmp_path, require_photos=False)
    with pytest.raises(DataError, match=reason):
        open_regions(tmp_path)
