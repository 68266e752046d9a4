"""What cannot be used: each photo is skipped with its reason, or stops a job that is strict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import DataError
from aladin_training.data import KNOWN_FORMATS, iter_records, read_records
from aladin_training.data.records import strict_data
from aladin_training.data.tables import open_table
from aladin_training.data.texts import iter_texts
from tests.training.data.conftest import Build

GOOD = {"image": "a.png", "captions": ["a dog"]}
SENTENCES = [{"raw": "x"}]
PHOTO = {"filename": "a.png", "split": "train", "sentences": SENTENCES}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{'image': 1}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (b'{"image": "caf\xe9.png"}', "not UTF-8 at byte 15 of the line"),
        ("[1, 2]", "expected a JSON object, got a list"),
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
    ],
)
def test_a_json_line_of_no_use_is_named_and_the_others_are_read(
    build: Build, line: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    raw = line if isinstance(line, bytes) else _text(line).encode()
    file = build("data.jsonl", _text(GOOD | {"id": "first"}).encode() + b"\n\n" + raw)
    with strict_data(True), pytest.raises(DataError, match=reason) as caught:
        read_records(file)
    assert (caught.value.file, caught.value.line) == (file, 3)
    records = read_records(file)
    assert [record.captions for record in records] == [("a dog",)] * (
        2 if r"captions\[1\]" in reason else 1
    )
    assert f"skipped data.jsonl:3: {caught.value.reason}"[:60] in caplog.text


def _text(line: object) -> str:
    return line if isinstance(line, str) else json.dumps(line)


def _karpathy(*photos: object) -> str:
    return json.dumps({"images": photos})


UNUSABLE: list[tuple[str, Any, str]] = [
    # JSON lines
    ("d.jsonl", "\n  \n", r"d\.jsonl: holds no photo"),
    # Karpathy's JSON: the file, and its photos
    ("d.json", b'{"images": [\n{"filename"', r"d\.json:2: not JSON"),
    ("d.json", b'{"image": "a"}\n{"image": "b"}', r"give JSON lines the suffix \.jsonl"),
    ("d.json", b"\xff\xfe\x00", "not JSON"),
    ("d.json", b"[]", "expected a JSON object, got a list"),
    ("d.json", b'{"annotations": []}', "lacks the field 'images'"),
    ("d.json", b'{"images": {}}', "images: expected a list, got an object"),
    ("d.json", _karpathy(), "holds no photo"),
    ("d.json", _karpathy(3), r"images\[0\]: expected a JSON object, got a number"),
    ("d.json", _karpathy({"split": "train"}), r"images\[0\]: lacks the field 'filename'"),
    ("d.json", _karpathy(PHOTO | {"split": 4}), r"images\[0\]: split: expected a text"),
    ("d.json", _karpathy(PHOTO | {"sentences": []}), r"images\[0\]: .* has no caption"),
    ("d.json", _karpathy({"filename": "a", "split": "b"}), r"images\[0\]: lacks .* 'sentences'"),
    (
        "d.json",
        _karpathy(PHOTO | {"sentences": [{"raw": "x"}, {}]}),
        r"images\[0\]\.sentences\[1\]: lacks the field 'raw'",
    ),
    ("d.json", _karpathy(PHOTO, PHOTO), r"images\[1\]: id 'a\.png' repeats, .* at images\[0\]"),
    ("d.json", _karpathy(PHOTO | {"cocoid": "1"}), r"images\[0\]: cocoid: expected a whole number"),
    ("d.json", _karpathy(PHOTO | {"filename": "1.png"}), r"images\[0\]: no such photo"),
    # CSV
    ("d.csv", "image,caption\na.png,one\nb.png\n", ":3: expected 2 cells, .* got 1"),
    ("d.csv", "image,caption\na.png,one,two\n", ":2: expected 2 cells, .* got 3"),
    ("d.csv", 'image,caption\n\n"a.png"x,1\n', ":3: not a line of a table"),
    ("d.csv", 'image,caption\n"a\nb.png",1\n"c.png"x,2\n', ":4: not a line of a table"),
    ("d.csv", "image,caption\n,one\n", ":2: image: expected the path of a photo, got None"),
    ("d.csv", b"image,caption\na.png,caf\xe9\n", r":2: not UTF-8 at byte 10 of the line"),
    ("d.csv", "image,image\na,b\n", ":1: names the column 'image' more than once"),
    ("d.csv", "a.png,a dog\n", "expected a column of photos, one of image, image_path, filepath"),
    ("d.csv", "caption,url\nx,y\n", "got the columns 'caption', 'url'"),
    ("d.csv", "image,split\na.png,train\na.png,val\n", ":3: photo 'a.png' is in split 'val' here"),
    ("d.csv", "", "is empty, expected a header"),
    ("d.csv", "image,caption\n", "holds no photo"),
    (
        "d.csv",
        "image,caption\na.png,one\nb/ü.png,two\na.png,three\n",
        r"d\.csv:4: id 'a\.png' repeats, first used at line 2",
    ),
    # Parquet
    ("d.parquet", b"", "cannot be read as parquet"),
    ("d.parquet", b"PAR1 cut", "cannot be read as parquet"),
    ("d.parquet", {"url": ["x"], "caption": ["y"]}, "got the columns 'url', 'caption'"),
    ("d.parquet", {"image": [b"\xff"]}, r"row 1: image: expected the path .* got b'\\xff'"),
    ("d.parquet", {"image": ["a.png"], "caption": [7]}, "row 1: caption: expected a text"),
    ("d.parquet", {"image": ["a.png", None]}, "row 2: image: expected the path"),
    ("d.parquet", {"image": ["a.png"], "id": [" "]}, "row 1: id: is blank"),
    ("d.parquet", {"image": ["a.png"], "id": [True]}, "row 1: id: expected a text, got bool"),
    ("d.parquet", {"image": ["a.png"], "split": [1.5]}, "row 1: split: expected a text, got float"),
    # Folders and tars
    ("d", {"notes.md": b"x"}, "holds no photo"),
    ("d", {"1.png": None}, r"1\.png: photo '1\.png' has no caption"),
    ("d", {"1.png": None, "1.txt": b"caf\xe9"}, r"1\.txt: cannot be read as UTF-8 text"),
    ("d", {"1.png": None, "1.json": b"[1]"}, r"1\.json: expected a JSON object"),
    ("d", {"1.png": None, "1.txt": b"a" * 65_537}, "65537 bytes, at most 65536 are read beside"),
    ("d", {"1.png": None, "1.json": b" " * 65_537}, "65537 bytes, at most 65536 are read beside"),
    ("d", {"a.tgz": b"\x1f\x8b"}, "compressed tar cannot be read in place"),
    ("d.tar.gz", b"\x1f\x8b", "compressed tar cannot be read in place"),
    ("d.TGZ", b"\x1f\x8b", "compressed tar cannot be read in place"),
    ("d.tar.zst", b"\x1f\x8b", "compressed tar cannot be read in place"),
    ("d.tar", {"a.jpg": None}, r"d\.tar: a\.jpg: photo 'd\.tar/a\.jpg' has no caption"),
    ("d.tar", {"a.jpg": None, "a.txt": b"caf\xe9"}, r"a\.txt: cannot be read as UTF-8 text"),
    ("d.tar", {"a.jpg": None, "a.txt": b"a" * 65_537}, "at most 65536 are read beside"),
    ("d.tar", {"a.jpg": None, "a.json": b"{"}, r"d\.tar: a\.json: not JSON"),
    ("d.tar", {"a.jpg": None, "a.json": b"[1]"}, r"d\.tar: a\.json: expected a JSON object"),
    ("d.tar", {"a.jpg": None, "a.json": b'{"caption": 7}'}, r"a\.jpg: caption: expected a text"),
    ("d.tar", {"a.jpg": None, "a.json": b'{"id": 1.5}'}, r"a\.jpg: id: .*a text, got float"),
    # Others
    ("d.xlsx", b"", KNOWN_FORMATS.replace(".", r"\.")),
]


@pytest.mark.parametrize(("name", "content", "reason"), UNUSABLE)
def test_a_data_set_that_cannot_be_used_is_refused_by_its_place(
    build: Build, name: str, content: Any, reason: str
) -> None:
    with strict_data(True), pytest.raises(DataError, match=reason) as caught:
        read_records(build(name, content))
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "names", "reason"),
    [
        ("d", ["a.jpg", "b.tar"], r"expected photos or tars, got both: a\.jpg and b\.tar"),
        ("d.tar", ["a.jpg", "b.jpg", "a.txt", "b.txt"], r"[ab]: .* not follow .*--sort=name"),
        ("d.tar", ["b.txt", "a.jpg", "a.txt", "b.jpg"], r"[ab]: .* not follow .*--sort=name"),
    ],
)
def test_files_in_a_wrong_order_are_refused_even_if_nothing_is_strict(
    build: Build, name: str, names: list[str], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        list(iter_records(build(name, dict.fromkeys(names, b"x")), require_captions=False))


TEXT = {"id": "2", "text": "b"}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", "id,text\n1,a\n2,\n", r"t\.csv:3: expected an id and a text, got id '2' and 0"),
        ("t.csv", "text,n\na,1\n", r"t\.csv:2: expected an id and a text, got id None and 1 texts"),
        (
            "t.csv",
            "id,n\n1,2\n",
            "expected a column of photos or of texts, got the columns 'id', 'n'",
        ),
        ("t.jsonl", "", "holds no"),
        *(
            ("t.jsonl", f"{json.dumps(TEXT | {'id': '1'})}\n{_text(line)}", rf":2: .*{reason}")
            for line, reason in [
                ({"text": "b"}, "lacks the field 'id'"),
                ({"id": "2"}, "lacks the field 'text'"),
                (TEXT | {"text": " "}, "text: is blank"),
                (TEXT | {"id": 2}, "id: expected a text, got a number"),
                (TEXT | {"lang": "en"}, "unknown field 'lang'"),
                (TEXT | {"metadata": 1}, "metadata: expected an object"),
                ("text", "not JSON"),
            ]
        ),
    ],
)
def test_texts_that_cannot_be_used_are_refused(
    build: Build, name: str, content: str, reason: str
) -> None:
    with strict_data(True), pytest.raises(DataError, match=reason):
        list(iter_texts(build(name, content)))


def test_paths_that_are_no_file_of_their_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(DataError, match="Is a directory"):
        open_table(tmp_path / "d.csv")
    with pytest.raises(DataError, match="no such file"):
        list(iter_texts(tmp_path / "none.jsonl"))
    (tmp_path / "d.xlsx").touch()
    with pytest.raises(DataError, match="expected a folder"):
        iter_records(tmp_path / "d.xlsx")  # before anything is read
    with pytest.raises(DataError, match="has no split 'test', it has none; expected split 'all'"):
        (tmp_path / "d.jsonl").write_text('{"image": "a.png", "captions": ["x"]}')
        read_records(tmp_path / "d.jsonl", "test")


def test_one_id_in_two_tars_is_refused_by_both_places(build: Build, tmp_path: Path) -> None:
    for name in ("t/0.tar", "t/1.tar"):
        build(name, {"a.jpg": None, "a.json": b'{"id": 7, "caption": "x"}'})
    expected = r"1\.tar: a\.jpg: id '7' repeats, first used at .*0\.tar, a\.jpg"
    with strict_data(True), pytest.raises(DataError, match=expected):
        read_records(tmp_path / "t")
