"""No error repeats a data file: whatever a field holds, the message is short."""

from __future__ import annotations

import csv
import json
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import DataError
from aladin_training.data import iter_records, read_records
from aladin_training.data.records import strict_data
from aladin_training.data.texts import iter_texts
from tests.training.data.conftest import Build

HUGE = "word " * 20_000
NUMBERS = list(range(2_000))
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
LINE = {"image": "a.png", "captions": ["x"], "split": "train"}
PHOTO = {"filename": "a.png", "split": "train", "sentences": [{"raw": "x"}]}


def check(read: Callable[[], object], file: Path) -> str | None:
    """Read a source, and return the message if it is refused: short, and of its path."""
    try:
        with strict_data(True):
            read()
    except DataError as error:
        assert len(str(error)) < MOST + len(str(file))
        assert str(error).startswith(str(file.parent))
        return str(error)
    return None


def contents(value: object) -> Iterator[tuple[str, str]]:
    """Suffixes and texts of files that have a value in one field after another."""
    for field in ("image", "captions", "split", "id", "metadata", HUGE):
        line = json.dumps(LINE | {field: value})
        yield ".jsonl", f"{line}\n{line}\n"
    for field in ("filename", "filepath", "split", "cocoid", "sentences"):
        yield ".json", json.dumps({"images": [PHOTO | {field: value}] * 2})
    for field in ("id", "text", "metadata", HUGE):
        yield ".jsonl", json.dumps({"id": "a", "text": "x"} | {field: value})


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_errors_about_json_and_files_beside_photos_are_short(
    build: Build, write_tar: Callable[..., Path], png: bytes, value: object
) -> None:
    for suffix, content in contents(value):
        file = build(f"a{suffix}", content)
        check(partial(read_records, file), file)
        check(lambda: list(iter_texts(file)), file)  # noqa: B023
        check(lambda: list(iter_records(file, HUGE)), file)  # noqa: B023
    name, path = "n" * 200, "/".join(["n" * 200] * 100)
    for field in ("caption", "split", "id", "status", HUGE):
        details = json.dumps({field: value}).encode()
        folder = build("folder", {f"{name}.png": None, f"{name}.json": details})
        check(partial(read_records, folder), folder / (name + ".json"))
        members = [(f"{path}.png", png), (f"{path}.json", details)]
        tar = write_tar("a.tar", members, format=tarfile.PAX_FORMAT)
        check(partial(read_records, tar), tar)


ROWS = {
    "photos": [["filepath", "title"], [HUGE, HUGE], ["b", "x"], [HUGE, "x"]],
    "splits": [["filepath", "title", "split"], ["a", "x", HUGE], ["a", "y", HUGE + "2"]],
    "columns that repeat": [["filepath", HUGE, HUGE], ["a", "x", "y"]],
    "columns": [[f"{HUGE}{number}" for number in range(9)], ["a"] * 9],
    "ids": [["filepath", "id", "title"], ["a", HUGE, "x"], ["b", HUGE, "x"]],
}


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_errors_about_tables_are_short(build: Build, kind: str, rows: list[list[str]]) -> None:
    csv.field_size_limit(10**6)
    file = build(f"a{kind}", "\n".join(("," if kind == ".csv" else "\t").join(r) for r in rows))
    assert check(lambda: read_records(file), file)
    check(lambda: list(iter_texts(file)), file)


@pytest.mark.parametrize("column", ["image", "caption", "split", "id"])
@pytest.mark.parametrize(
    "value", [b"\xff\xd8" * 9000, {"bytes": b"\xff" * 9000}, NUMBERS], ids=["bytes", "map", "list"]
)
def test_errors_about_parquet_are_short_and_name_the_column(
    build: Build, column: str, value: object
) -> None:
    row = {"image": "a.png", "caption": "x", "split": "train", "id": "a"} | {column: value}
    file = build("a.parquet", {name: [each] for name, each in row.items()})
    assert column in (check(lambda: read_records(file, require_photos=False), file) or "")
