"""The project's JSONL: what is read, and one clear error for everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from aladin_network.errors import DataError
from aladin_training.data import read_records
from aladin_training.data.records import strict_data

Write = Callable[..., Path]

GOOD = {"image": "a.png", "captions": ["a dog"]}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write ``data.jsonl`` from lines (dicts or raw text) beside the photos a.png and b/ü.png."""
    (tmp_path / "b").mkdir()
    for name in ("a.png", "b/ü.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)

    def write_lines(*lines: object, end: str = "\n") -> Path:
        file = tmp_path / "data.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_bytes("".join(text + end for text in texts).encode())
        return file

    return write_lines


def test_all_fields(write: Write, tmp_path: Path) -> None:
    line = {
        "image": "b/ü.png",
        "captions": ["ein Hund", "犬が走る", "a dog 🐕"],
        "split": "val",
        "id": "photo-7",
        "metadata": {"licence": "CC0", "stars": [1, 2]},
    }
    file = write(json.dumps(line, ensure_ascii=False))
    (record,) = read_records(file)
    assert record.id == "photo-7"
    assert record.uri == "b/ü.png"
    assert record.photo.path == tmp_path / "b" / "ü.png"
    assert record.captions == ("ein Hund", "犬が走る", "a dog 🐕")
    assert record.split == "val"
    assert record.metadata == {"licence": "CC0", "stars": [1, 2]}


def test_the_id_is_by_default_the_photo_as_written(write: Write) -> None:
    (record,) = read_records(write({"image": "./b/../a.png", "captions": ["x"]}))
    assert record.id == record.uri == "./b/../a.png"
    assert record.split is None
    assert record.metadata == {}


def test_relative_photos_count_from_the_file_and_not_from_the_working_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(GOOD)
    monkeypatch.chdir(tmp_path.parent)
    (record,) = read_records(Path(tmp_path.name) / "data.jsonl")
    assert record.photo.path == tmp_path / "a.png"


def test_an_absolute_photo_stays_as_it_is(write: Write, tmp_path: Path) -> None:
    (record,) = read_records(write({"image": str(tmp_path / "a.png"), "captions": ["x"]}))
    assert record.photo.path == tmp_path / "a.png"


def test_blank_lines_windows_line_ends_and_a_byte_order_mark(write: Write) -> None:
    other = {"image": "b/ü.png", "captions": ["a cat"]}
    file = write("\ufeff" + json.dumps(GOOD), "", "   ", other, "", end="\r\n")
    assert [record.captions for record in read_records(file)] == [("a dog",), ("a cat",)]


def test_a_line_separator_inside_a_caption_does_not_end_the_line(write: Write) -> None:
    file = write(json.dumps({"image": "a.png", "captions": ["one\u2028two"]}, ensure_ascii=False))
    assert read_records(file)[0].captions == ("one\u2028two",)


def test_photos_without_captions_where_none_are_required(write: Write) -> None:
    file = write({"image": "a.png"})
    (record,) = read_records(file, require_captions=False)
    assert record.captions == ()
    with pytest.raises(DataError, match=r"data\.jsonl:1: photo 'a\.png' has no caption"):
        read_records(file)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{'image': 1}", "not JSON"),
        ('{"image": "a.png", "captions": ["a d', "not JSON"),
        ("[1, 2]", "expected a JSON object, got a list"),
        ("null", "expected a JSON object, got null"),
        ({"captions": ["a dog"]}, "lacks the field 'image'"),
        (GOOD | {"image": 7}, "image: expected a text, got a number"),
        (GOOD | {"image": "  "}, "image: is blank"),
        (GOOD | {"captions": "a dog"}, "captions: expected a list, got a text"),
        (GOOD | {"captions": ["a dog", None]}, r"captions\[1\]: expected a text, got null"),
        (GOOD | {"captions": ["a dog", " \t"]}, r"captions\[1\]: is blank"),
        (GOOD | {"captions": ["\ud83d"]}, r"captions\[0\]: is not valid Unicode"),
        (GOOD | {"captions": []}, "photo 'a.png' has no caption"),
        (GOOD | {"split": True}, "split: expected a text, got true or false"),
        (GOOD | {"id": ""}, "id: is blank"),
        (GOOD | {"metadata": ["x"]}, "metadata: expected an object, got a list"),
        (GOOD | {"caption": "a dog"}, r"unknown field 'caption', known are \['captions', 'id'"),
        (GOOD | {"image": "missing.png"}, r"no such photo: .*missing\.png"),
        (GOOD | {"image": "b"}, "no such photo"),
        (GOOD | {"image": "a.png\x00"}, "no such photo"),
        (GOOD | {"id": "first"}, "id 'first' repeats, first used at line 1"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_line_that_cannot_be_used(
    write: Write, line: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(GOOD | {"id": "first"}, "", line)
    with strict_data(True), pytest.raises(DataError, match=reason) as caught:
        read_records(file)
    assert (caught.value.file, caught.value.line) == (file, 3)
    # Without, it is named, and the rest is used.
    records = read_records(file)
    assert records[0].captions == tuple(GOOD["captions"])
    assert len(records) == (2 if "captions\\[1\\]" in reason else 1)
    assert re.search(rf"skipped data\.jsonl:3: .*{reason}", caplog.text)


def test_a_line_that_is_not_utf8(write: Write) -> None:
    file = write(GOOD)
    file.write_bytes(file.read_bytes() + b'{"image": "caf\xe9.png"}\n')
    with strict_data(True), pytest.raises(DataError, match=r":2: not UTF-8 at byte 15 of the line"):
        read_records(file)


@pytest.mark.parametrize("lines", [(), ("", "  ")])
def test_an_empty_file(write: Write, lines: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match=r"data\.jsonl: holds no photo"):
        read_records(write(*lines))
