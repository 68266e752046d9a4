"""No error repeats a data file: whatever a field holds, the message is short."""

from __future__ import annotations

import csv
import json
import tarfile
from collections.abc import Callable, Iterator
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
LINE = {"image": "a.png", "captions": ["x"], "split": "train"}
PHOTO = {"filename": "a.png", "split": "train", "sentences": [{"raw": "x"}]}


def check(read: Callable[[], object], file: Path) -> bool:
    """Read a source: if it is refused, the message is short and begins with its path."""
    try:
        with strict_data(True):
            read()
    except DataError as error:
        assert len(str(error)) < MOST + len(str(file))
        assert str(error).startswith(str(file.parent))
        return True
    return False


def json_files(value: object) -> Iterator[tuple[str, str]]:
    """Suffixes and texts of files that have the value in one field after another."""
    for field in ("image", "captions", "split", "id", "metadata", HUGE):
        line = json.dumps(LINE | {field: value})
        yield ".jsonl", f"{line}\n{line}\n"
    for field in ("filename", "filepath", "split", "cocoid", "sentences"):
        yield ".json", json.dumps({"images": [PHOTO | {field: value}] * 2})
    for field in ("id", "text", "metadata", HUGE):
        yield ".jsonl", json.dumps({"id": "a", "text": "x"} | {field: value})


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_errors_about_json_are_short(tmp_path: Path, value: object) -> None:
    for suffix, content in json_files(value):
        file = tmp_path / f"a{suffix}"
        file.write_text(content)
        for read in (lambda: read_records(file), lambda: list(iter_texts(file))):  # noqa: B023
            check(read, file)
        check(lambda: list(iter_records(file, HUGE)), file)  # noqa: B023


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
    ids=["photos", "splits", "columns that repeat", "columns", "ids"],
)
def test_errors_about_tables_are_short(tmp_path: Path, kind: str, rows: list[list[str]]) -> None:
    csv.field_size_limit(10**6)
    file = tmp_path / f"a{kind}"
    with file.open("w") as opened:
        csv.writer(opened, delimiter="," if kind == ".csv" else "\t").writerows(rows)
    assert check(lambda: read_records(file), file)
    check(lambda: list(iter_texts(file)), file)


@pytest.mark.parametrize("column", ["image", "caption", "split", "id"])
@pytest.mark.parametrize(
    "value", [b"\xff\xd8" * 9000, {"bytes": b"\xff" * 9000}, NUMBERS], ids=["bytes", "map", "list"]
)
def test_errors_about_parquet_are_short_and_name_the_column(
    write_parquet: Callable[..., Path], column: str, value: object
) -> None:
    row = {"image": "a.png", "caption": "x", "split": "train", "id": "a"} | {column: value}
    file = write_parquet("a.parquet", {name: [each] for name, each in row.items()})
    with pytest.raises(DataError, match=column):
        list(iter_records(file, on_skip=_stop))
    assert check(lambda: read_records(file, require_photos=False), file)


def _stop(photo: Any) -> None:
    raise photo.error


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_errors_about_files_beside_photos_are_short(
    tmp_path: Path,
    write_tar: Callable[..., Path],
    picture: Callable[[int], bytes],
    value: object,
) -> None:
    folder, path = tmp_path / "folder", "/".join(["n" * 200] * 100)
    folder.mkdir()
    (folder / f"{'n' * 200}.png").write_bytes(picture(1))
    for field in ("caption", "split", "id", "status", HUGE):
        details = json.dumps({field: value}).encode()
        (folder / f"{'n' * 200}.json").write_bytes(details)
        check(lambda: read_records(folder), folder / ("n" * 205))
        members = [(f"{path}.png", picture(1)), (f"{path}.json", details)]
        tar = write_tar("a.tar", members, format=tarfile.PAX_FORMAT)
        check(lambda: read_records(tar), tar)  # noqa: B023
