"""CSV and TSV: columns, quotes, numbers, and one clear error for everything else."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from aladin_network.errors import DataError
from aladin_training.data import Record, iter_records, read_records
from aladin_training.data.records import strict_data
from aladin_training.data.tables import open_table


def write(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def records(file: Path, split: str | None = None) -> list[Record]:
    return list(iter_records(file, split, require_captions=False))


def test_the_columns_of_open_clip(tmp_path: Path) -> None:
    content = "filepath\ttitle\nimgs/a b.jpg\ta dog, running\nimgs/ü.jpg\tein Hund\n"
    first, second = records(write(tmp_path, content, "train.tsv"))
    assert (first.id, first.uri) == ("imgs/a b.jpg", "imgs/a b.jpg")
    assert first.photo.path == tmp_path / "imgs" / "a b.jpg"
    assert first.captions == ("a dog, running",)
    assert (second.captions, second.split, second.metadata) == (("ein Hund",), None, {})


def test_all_columns(tmp_path: Path) -> None:
    content = "split,id,image,caption,year,licence\nval,7,a.jpg,a dog,1999,CC0\n"
    (record,) = records(write(tmp_path, content))
    assert record == Record(
        id="7",
        photo=record.photo,
        uri="a.jpg",
        captions=("a dog",),
        split="val",
        metadata={"year": 1999, "licence": "CC0"},
    )


def test_rows_of_one_photo_that_follow_one_another_are_its_captions(tmp_path: Path) -> None:
    content = "image,caption,n\na.jpg,one,1\na.jpg,two,2\nb.jpg,three,3\nb.jpg,,4\nc.jpg,,5\n"
    found = records(write(tmp_path, content))
    assert [record.captions for record in found] == [("one", "two"), ("three",), ()]
    assert [record.metadata for record in found] == [{"n": 1}, {"n": 3}, {"n": 5}]


def test_rows_of_one_photo_apart_are_one_id_twice(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).touch()
    file = write(tmp_path, "image,caption\na.jpg,one\nb.jpg,two\na.jpg,three\n")
    with (
        strict_data(True),
        pytest.raises(DataError, match=r"data\.csv:4: id 'a\.jpg' repeats, first used at line 2"),
    ):
        read_records(file)


def test_a_byte_order_mark_windows_line_ends_and_quotes(tmp_path: Path) -> None:
    content = (
        '\ufeffimage,caption\r\n"a,1.jpg","he said ""sit"",\r\nand it sat"\r\n\r\nb.jpg,plain\r\n'
    )
    first, second = records(write(tmp_path, content))
    assert (first.uri, first.captions) == ("a,1.jpg", ('he said "sit",\r\nand it sat',))
    assert (second.uri, second.captions) == ("b.jpg", ("plain",))


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("2.50", 2.5),
        ("-1e-3", -0.001),
        ("true", True),
        ("FALSE", False),
        ("007", "007"),
        ("+1", "+1"),
        ("1,5", "1,5"),
        ("1e999", "1e999"),
        ("12345678901234567890", "12345678901234567890"),
        ("nan", "nan"),
        ("1٢", "1٢"),
        (" 12", " 12"),
        ("yes", "yes"),
    ],
)
def test_metadata_cells_are_numbers_or_truth_values_only_in_canonical_spelling(
    tmp_path: Path, cell: str, value: object
) -> None:
    (record,) = records(write(tmp_path, f'image,cell\na.jpg,"{cell}"\n'))
    found = record.metadata["cell"]
    assert (found, type(found)) == (value, type(value))


def test_an_empty_cell_is_no_metadata(tmp_path: Path) -> None:
    (record,) = records(write(tmp_path, "image,year,split\na.jpg,,\n"))
    assert (record.metadata, record.split) == ({}, None)


def test_numbers_stay_text_where_they_are_names(tmp_path: Path) -> None:
    (record,) = records(write(tmp_path, "image,id,caption,split\n1,2,3,4\n"))
    assert (record.uri, record.id, record.captions, record.split) == ("1", "2", ("3",), "4")


def test_of_several_columns_the_first_known_name_counts(tmp_path: Path) -> None:
    content = "title,path,caption,image_path\nT,p.jpg,C,i.jpg\n"
    (record,) = records(write(tmp_path, content))
    assert (record.uri, record.captions) == ("i.jpg", ("C",))
    assert record.metadata == {"title": "T", "path": "p.jpg"}


def test_rows_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    lines = [f"{n}.jpg,caption {n}\n" for n in range(5_000)]
    file = write(tmp_path, "image,caption\n" + "".join(lines) + 'x.jpg,"broken\n')
    assert [record.id for record in islice(iter_records(file), 2)] == ["0.jpg", "1.jpg"]
    with pytest.raises(DataError, match=r"data\.csv:5002: not a line of a table"):
        list(iter_records(file))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("image,caption\na.jpg,one\nb.jpg\n", ":3: expected 2 cells, as in the header, got 1"),
        ("image,caption\na.jpg,one,two\n", ":2: expected 2 cells, as in the header, got 3"),
        ('image,caption\n\n"a.jpg"x,1\n', ":3: not a line of a table"),
        ('image,caption\n"a\nb.jpg",1\n"c.jpg"x,2\n', ":4: not a line of a table"),
        ("image,caption\n,one\n", ":2: image: expected the path of a photo, got None"),
        (b"image,caption\na.jpg,caf\xe9\n", r":2: not UTF-8 at byte 10 of the line"),
        ("image,image\na,b\n", ":1: names the column 'image' more than once"),
        ("a.jpg,a dog\n", "expected a column of photos, one of image, image_path, filepath"),
        ("caption,url\nx,y\n", "got the columns 'caption', 'url'"),
        ("image,split\na.jpg,train\na.jpg,val\n", ":3: photo 'a.jpg' is in split 'val' here"),
        ("", "is empty, expected a header"),
        ("image,caption\n", "holds no photo"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, content: str | bytes, reason: str) -> None:
    with strict_data(True), pytest.raises(DataError, match=rf"data\.csv.*{reason}"):
        records(write(tmp_path, content))


def test_a_folder_named_like_a_table(tmp_path: Path) -> None:
    (tmp_path / "data.csv").mkdir()
    with pytest.raises(DataError, match="Is a directory"):
        open_table(tmp_path / "data.csv")
