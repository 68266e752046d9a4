"""No error repeats a data file: whatever a field holds, the message is short."""

from __future__ import annotations

import csv
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import DataError
from aladin_training.data import iter_records, read_records
from aladin_training.data.records import strict_data
from aladin_training.data.texts import iter_texts

HUGE = "word " * 20_000
NUMBERS = list(range(20_000))
MOST = 500

# Values that a field may have, none of which is short.
VALUES: dict[str, Any] = {
    "text": HUGE,
    "blank": " " * 100_000,
    "surrogate": HUGE + "\ud800",
    "list": NUMBERS,
    "texts and a number": [HUGE, 7],
    "object": {HUGE: HUGE},
    "deep": {"a": [{"b": HUGE}]},
    "number": 10**300,
    "nothing": None,
}


def check(read: Callable[[], object], file: Path) -> None:
    """Read a source: if it is refused, the message is short."""
    try:
        with strict_data(True):
            read()
    except DataError as error:
        assert len(str(error)) < MOST + len(str(file))
        assert str(error).startswith(str(file.parent))


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("field", ["image", "captions", "split", "id", "metadata", HUGE])
def test_json_lines(tmp_path: Path, field: str, value: object) -> None:
    file = tmp_path / "a.jsonl"
    line = {"image": "a.png", "captions": ["x"], "split": "train"} | {field: value}
    file.write_text(f"{json.dumps(line)}\n{json.dumps(line)}\n")
    check(lambda: read_records(file), file)
    check(lambda: list(iter_records(file, HUGE)), file)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("field", ["id", "text", "metadata", HUGE])
def test_lines_of_texts(tmp_path: Path, field: str, value: object) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"id": "a", "text": "x"} | {field: value}))
    check(lambda: list(iter_texts(file)), file)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("field", ["filename", "filepath", "split", "cocoid", "sentences"])
def test_karpathy(tmp_path: Path, field: str, value: object) -> None:
    file = tmp_path / "a.json"
    photo = {"filename": "a.png", "split": "train", "sentences": [{"raw": "x"}]} | {field: value}
    file.write_text(json.dumps({"images": [photo, photo]}))
    check(lambda: read_records(file), file)


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
@pytest.mark.parametrize(
    "rows",
    [
        [["filepath", "title"], [HUGE, HUGE], ["b", "x"], [HUGE, "x"]],
        [["filepath", "title", "split"], ["a", "x", HUGE], ["a", "y", HUGE + "2"]],
        [["filepath", HUGE, HUGE], ["a", "x", "y"]],
        [[f"{HUGE}{number}" for number in range(9)], ["a"] * 9],
        [["filepath", "id", "title"], ["a", HUGE, "x"], ["b", HUGE, "x"]],
    ],
)
def test_tables(tmp_path: Path, kind: str, rows: list[list[str]]) -> None:
    csv.field_size_limit(10**6)
    file = tmp_path / f"a{kind}"
    with file.open("w") as opened:
        csv.writer(opened, delimiter="," if kind == ".csv" else "\t").writerows(rows)
    with strict_data(True), pytest.raises(DataError):
        read_records(file)
    check(lambda: read_records(file), file)
    check(lambda: list(iter_texts(file)), file)


@pytest.mark.parametrize("column", ["image", "caption", "split", "id"])
@pytest.mark.parametrize("value", [b"\xff\xd8" * 9000, {"bytes": b"\xff" * 9000}, NUMBERS])
def test_parquet(
    tmp_path: Path, write_parquet: Callable[..., Path], column: str, value: object
) -> None:
    row = {"image": "a.png", "caption": "x", "split": "train", "id": "a"} | {column: value}
    file = write_parquet("a.parquet", {name: [each] for name, each in row.items()})
    with strict_data(True), pytest.raises(DataError) as caught:
        read_records(file, require_photos=False)
    assert len(str(caught.value)) < MOST + len(str(file))
    assert column in str(caught.value)
    assert tmp_path in caught.value.file.parents


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("field", ["caption", "split", "id", "status", HUGE])
def test_files_beside_photos(
    tmp_path: Path,
    write_tar: Callable[..., Path],
    picture: Callable[[int], bytes],
    field: str,
    value: object,
) -> None:
    details = json.dumps({field: value}).encode()
    (tmp_path / "folder").mkdir()
    for name, content in ((f"{'n' * 200}.png", picture(1)), (f"{'n' * 200}.json", details)):
        (tmp_path / "folder" / name).write_bytes(content)
    check(lambda: read_records(tmp_path / "folder"), tmp_path / "folder" / ("n" * 205))
    name = "/".join(["n" * 200] * 100)
    members = [(f"{name}.png", picture(1)), (f"{name}.json", details)]
    tar = write_tar("a.tar", members, format=tarfile.PAX_FORMAT)
    check(lambda: read_records(tar), tar)
