"""Parquet: the columns of img2dataset and clip-retrieval, streamed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path

import pytest

from aladin_network.errors import DataError
from aladin_training.data import iter_records, read_records
from aladin_training.data.records import strict_data

WriteParquet = Callable[..., Path]


def test_clip_retrievals_metadata(write_parquet: WriteParquet, tmp_path: Path) -> None:
    file = write_parquet(
        "metadata_0.parquet",
        {
            "image_path": ["a.jpg", "/photos/b.jpg"],
            "caption": ["a dog", None],
            "url": ["http://host/a.jpg", None],
            "similarity": [0.25, float("nan")],
        },
    )
    first, second = iter_records(file, require_captions=False)
    assert (first.id, first.captions) == ("a.jpg", ("a dog",))
    assert first.photo.path == tmp_path / "a.jpg"
    assert first.metadata == {"url": "http://host/a.jpg", "similarity": 0.25}
    assert (second.photo.path, second.captions) == (Path("/photos/b.jpg"), ())
    assert second.metadata == {}


def test_types_are_kept(write_parquet: WriteParquet) -> None:
    file = write_parquet(
        "a.parquet",
        {
            "path": ["a.jpg"],
            "key": [12],
            "captions": [["one", " ", "two "]],
            "split": ["val"],
            "count": [2**40],
            "share": [0.5],
            "good": [True],
            "price": [Decimal("1.25")],
            "taken": [datetime(2020, 1, 2, 3, 4)],
            "tags": [["a", "b"]],
            "place": [{"country": "IS", "hash": b"\0"}],
            "thumbnail": [b"\xff\xd8"],
            "nothing": [None],
        },
    )
    (record,) = iter_records(file)
    assert (record.id, record.captions, record.split) == ("12", ("one", "two"), "val")
    assert record.metadata == {
        "count": 2**40,
        "share": 0.5,
        "good": True,
        "price": 1.25,
        "taken": "2020-01-02T03:04:00",
        "tags": ["a", "b"],
        "place": {"country": "IS", "hash": None},
    }
    assert record.metadata["good"] is True


def test_rows_of_failed_downloads_are_skipped_and_photos_joined(
    write_parquet: WriteParquet,
) -> None:
    file = write_parquet(
        "a.parquet",
        {
            "filepath": ["a.jpg", "a.jpg", "b.jpg", "c.jpg"],
            "title": ["one", "two", "three", "four"],
            "status": ["success", "success", "failed_to_download", None],
            "error_message": [None, None, "404", None],
        },
        row_group_size=1,
    )
    found = list(iter_records(file))
    assert [record.captions for record in found] == [("one", "two"), ("four",)]
    assert found[0].metadata == {}


def test_row_groups_are_read_one_by_one(
    write_parquet: WriteParquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import RecordBatch

    rows = 9_000
    file = write_parquet(
        "a.parquet",
        {"image": [f"{n}.jpg" for n in range(rows)], "caption": ["x"] * rows},
        row_group_size=2000,
    )
    batches: list[int] = []

    class Counted:
        """Stands in for `ParquetFile`, and notes the sizes of what it hands out."""

        def __init__(self, path: Path) -> None:
            self._file = original(path)

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def iter_batches(self, size: int) -> object:
            for batch in self._file.iter_batches(size):
                assert isinstance(batch, RecordBatch)
                batches.append(batch.num_rows)
                yield batch

    import pyarrow.parquet

    original = pyarrow.parquet.ParquetFile
    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", Counted)
    records = iter_records(file)
    assert [record.id for record in islice(records, 1)] == ["0.jpg"]
    assert len(batches) == 1
    assert sum(1 for _ in records) == rows - 1
    assert max(batches) <= 1024
    assert sum(batches) == rows


def test_pandas_index_is_no_column(write_parquet: WriteParquet) -> None:
    file = write_parquet("a.parquet", {"image": ["a.jpg"], "__index_level_0__": [7]})
    (record,) = iter_records(file, require_captions=False)
    assert record.metadata == {}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"url": ["x"], "caption": ["y"]}, "got the columns 'url', 'caption'"),
        (
            {"image": [b"\xff\xd8"]},
            r"row 1: image: expected the path of a photo, got b'\\xff\\xd8'",
        ),
        ({"image": ["a.jpg"], "caption": [7]}, "row 1: caption: expected a text"),
        ({"image": ["a.jpg", None]}, "row 2: image: expected the path"),
        ({"image": ["a.jpg"], "id": [" "]}, "row 1: id: is blank"),
        ({"image": ["a.jpg"], "id": [True]}, "row 1: id: expected a text, got bool"),
        ({"image": ["a.jpg"], "split": [1.5]}, "row 1: split: expected a text, got float"),
    ],
)
def test_a_table_that_cannot_be_used(
    write_parquet: WriteParquet, columns: dict[str, list[object]], reason: str
) -> None:
    with strict_data(True), pytest.raises(DataError, match=rf"a\.parquet: .*{reason}"):
        list(iter_records(write_parquet("a.parquet", columns), require_captions=False))


@pytest.mark.parametrize("cut", [0, 10, -20])
def test_a_file_that_is_no_parquet(write_parquet: WriteParquet, cut: int) -> None:
    file = write_parquet("a.parquet", {"image": ["a.jpg"]})
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as parquet"):
        read_records(file)
