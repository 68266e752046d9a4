"""Karpathy's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from aladin_network.errors import DataError
from aladin_training.data import read_records
from aladin_training.data.records import strict_data


def photo(filename: str, split: str, *captions: str, **fields: Any) -> dict[str, Any]:
    sentences = [{"raw": caption, "tokens": caption.split(), "sentid": 0} for caption in captions]
    return {"filename": filename, "split": split, "sentences": sentences, "imgid": 0} | fields


def save(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name)


def write(file: Path, *photos: object) -> Path:
    file.write_text(json.dumps({"images": photos, "dataset": "flickr8k"}), encoding="utf-8")
    return file


def test_restval_joins_train(tmp_path: Path) -> None:
    save(tmp_path / "images", "1.jpg", "2.jpg", "3.jpg")
    file = write(
        tmp_path / "dataset.json",
        photo("1.jpg", "train", "a dog .", "a brown dog ."),
        photo("2.jpg", "restval", "a cat ."),
        photo("3.jpg", "val", "a bird ."),
    )
    records = read_records(file, "train")
    assert [(record.id, record.captions) for record in records] == [
        ("1.jpg", ("a dog .", "a brown dog .")),
        ("2.jpg", ("a cat .",)),
    ]
    assert records[0].photo.path == tmp_path / "images" / "1.jpg"
    with pytest.raises(DataError, match=r"no split 'restval', known are \['train', 'val'\]"):
        read_records(file, "restval")


def test_photos_of_coco_lie_in_subfolders(tmp_path: Path) -> None:
    save(tmp_path, "val2014/1.jpg")
    file = write(tmp_path / "dataset.json", photo("1.jpg", "test", "x", filepath="val2014"))
    (record,) = read_records(file)
    assert record.id == record.uri == "val2014/1.jpg"
    assert record.photo.path == tmp_path / "val2014" / "1.jpg"


def test_photos_in_a_folder_of_their_own(tmp_path: Path) -> None:
    save(tmp_path / "elsewhere", "1.jpg")
    file = write(tmp_path / "dataset.json", photo("1.jpg", "test", "x"))
    (record,) = read_records(file, images=tmp_path / "elsewhere")
    assert record.photo.path == tmp_path / "elsewhere" / "1.jpg"
    with pytest.raises(DataError, match=r"images\[0\]: no such photo"):
        read_records(file)


@pytest.mark.parametrize(
    ("photos", "reason"),
    [
        ([3], r"images\[0\]: expected a JSON object, got a number"),
        ([{"split": "train"}], r"images\[0\]: lacks the field 'filename'"),
        ([photo("1.jpg", "train", "x") | {"split": 4}], r"images\[0\]: split: expected a text"),
        ([photo("1.jpg", "train")], r"images\[0\]: photo '1\.jpg' has no caption"),
        ([{"filename": "1.jpg", "split": "val"}], r"images\[0\]: lacks the field 'sentences'"),
        (
            [photo("1.jpg", "train", "x") | {"sentences": [{"raw": "x"}, {}]}],
            r"images\[0\]\.sentences\[1\]: lacks the field 'raw'",
        ),
        (
            [photo("1.jpg", "train", "x"), photo("1.jpg", "val", "y")],
            r"images\[1\]: id '1\.jpg' repeats, first used at images\[0\]",
        ),
        ([], "holds no photo"),
    ],
)
def test_a_photo_that_cannot_be_used(tmp_path: Path, photos: list[object], reason: str) -> None:
    save(tmp_path, "1.jpg")
    with strict_data(True), pytest.raises(DataError, match=reason):
        read_records(write(tmp_path / "dataset.json", *photos))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"images": [\n{"filename"', r"dataset\.json:2: not JSON"),
        (b'{"image": "a"}\n{"image": "b"}', r"give JSON lines the suffix \.jsonl"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[]", "expected a JSON object, got a list"),
        (b'{"annotations": []}', "lacks the field 'images'"),
        (b'{"images": {}}', "images: expected a list, got an object"),
    ],
)
def test_a_file_of_another_format(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "dataset.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=reason):
        read_records(file)


def test_cocos_number_of_a_photo_is_metadata(tmp_path: Path) -> None:
    file = write(
        tmp_path / "dataset.json",
        photo("1.jpg", "test", "x", cocoid=391895),
        photo("2.jpg", "test", "x"),
    )
    first, second = read_records(file, require_photos=False)
    assert first.metadata == {"cocoid": 391895}
    assert second.metadata == {}
    file = write(tmp_path / "dataset.json", photo("1.jpg", "test", "x", cocoid="one"))
    with pytest.raises(
        DataError, match=r"images\[0\]: cocoid: expected a whole number, got a text"
    ):
        read_records(file, require_photos=False)
