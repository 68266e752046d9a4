"""Every format of data sets: the same records, from the fields, columns and files of each."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from itertools import islice
from os import pread
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from aladin_network.errors import DataError
from aladin_network.types import TextItem
from aladin_training.data import Record, iter_records, read_records
from aladin_training.data.records import Source, strict_data
from aladin_training.data.texts import iter_texts
from aladin_training.data.webdataset import read_tar
from tests.training.data.conftest import Build

CAPTIONS = {"a": ["one dog", "a dog"], "b": ["two, dogs"], "c": ['"three" dogs']}
SPLITS = {"a": "train", "b": "train", "c": "val"}


@pytest.fixture
def sources(build: Build, picture: Callable[[int], bytes]) -> list[Path]:
    """The photos a, b and c, as JSONL, Karpathy JSON, CSV, TSV, parquet, tar and folder."""
    names = [f"{name}.png" for name in CAPTIONS]
    rows = list(zip(names, CAPTIONS.values(), SPLITS.values(), strict=True))
    lines = [
        json.dumps({"image": name, "captions": captions, "split": split, "metadata": {"n": 1}})
        for name, captions, split in rows
    ]
    karpathy = [
        {
            "filename": name,
            "split": {"train": "restval"}.get(split, split),
            "sentences": [{"raw": caption} for caption in captions],
        }
        for name, captions, split in rows
    ]
    tables: list[str] = []
    for delimiter in ",\t":
        text = io.StringIO()
        table = csv.writer(text, delimiter=delimiter)
        table.writerow(["filepath", "title", "split", "n"])
        for name, captions, split in rows:
            table.writerows([name, caption, split, 1] for caption in captions)
        tables.append(text.getvalue())
    columns = {"image_path": names, "captions": list(CAPTIONS.values()), "n": [1, 1, 1]}
    members: dict[str, bytes] = {}
    files: dict[str, bytes] = {}
    for number, (name, captions, split) in enumerate(rows):
        build(name, picture(number))
        for suffix, content in ((".png", picture(number)), (".txt", "\n".join(captions).encode())):
            members[name[0] + suffix] = files[f"{split}/{name[0]}{suffix}"] = content
        members[f"{name[0]}.json"] = json.dumps({"id": name, "n": 1, "split": split}).encode()
        files[f"{split}/{name[0]}.json"] = b'{"n": 1}'
    return [
        build("a.jsonl", "\n".join(lines)),
        build("a.json", json.dumps({"images": karpathy})),
        build("a.csv", tables[0]),
        build("a.tsv", tables[1]),
        build("a.parquet", columns | {"split": list(SPLITS.values())}),
        build("a.tar", members),
        build("folder", files),
    ]


def test_every_format_gives_the_same_records_and_texts(
    sources: list[Path], picture: Callable[[int], bytes]
) -> None:
    for source in sources:
        records = read_records(source)
        names = [f"{record.split}/" if source.is_dir() else "" for record in records]
        ids = [f"{folder}{n}.png" for folder, n in zip(names, CAPTIONS, strict=True)]
        assert [record.id for record in records] == ids, source
        assert [list(record.captions) for record in records] == list(CAPTIONS.values()), source
        assert [record.split for record in records] == list(SPLITS.values()), source
        assert [record.photo.read() for record in records] == [picture(n) for n in range(3)]
        if source.suffix != ".json":  # Karpathy's has no metadata
            assert [record.metadata for record in records] == [{"n": 1}] * 3, source
        assert [record.id for record in iter_records(source, "val")] == ids[2:], source
        assert list(iter_texts(source)) == [
            TextItem(
                id=f"{record.id}#{number}",
                text=caption,
                metadata=record.metadata,
                image_id=record.id,
            )
            for record in records
            for number, caption in enumerate(record.captions)
        ]
        assert [text.image_id for text in iter_texts(source, "val")] == ids[2:], source
        with pytest.raises(DataError, match=r"no split 'test', known are \['train', 'val'\]"):
            read_records(source, "test")


def test_files_of_one_pattern_are_one_data_set(sources: list[Path], tmp_path: Path) -> None:
    assert {path.suffix for path in sources} >= {".csv", ".tsv"}
    records = list(iter_records(tmp_path / "a.{csv,tsv}"))
    assert [record.id for record in records] == ["a.png", "b.png", "c.png"] * 2
    expected = r"a\.tsv:2: id 'a\.png' repeats, first used at .*a\.csv"
    with strict_data(True), pytest.raises(DataError, match=expected):
        read_records(tmp_path / "a.{csv,tsv}")


@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_a_missing_photo_is_left_to_whoever_reads_on_and_skipped_in_a_data_set(
    place: int, sources: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "b.png").unlink()
    assert [record.id for record in iter_records(sources[place])] == ["a.png", "b.png", "c.png"]
    with (
        strict_data(True),
        pytest.raises(DataError, match=r"(: |:4: )(.*: )?no such photo: .*b\.png"),
    ):
        read_records(sources[place])
    assert [record.id for record in read_records(sources[place])] == ["a.png", "c.png"]


# A photo as it is read: its id, captions, split, and metadata.
Read = tuple[str, tuple[str, ...], str | None, dict[str, Any]]


def plain(photo: str, *captions: str, **metadata: Any) -> Read:
    return photo, captions, None, metadata


def karpathy(**fields: Any) -> str:
    photo = {"filename": "1.jpg", "split": "test", "sentences": [{"raw": "x", "sentid": 0}]}
    return json.dumps({"images": [photo | {"imgid": 0} | fields], "dataset": "flickr8k"})


TAKEOUT = b'{"title": "1.png", "description": "Anna", "photoTakenTime": {}, "people": ["Anna"]}'
DOWNLOADED = {
    "caption": "a dog",
    "url": "http://host/0.jpg",
    "key": "0",
    "status": "success",
    "error_message": None,
    "width": 256,
    "exif": '{"GPS": "here"}',
}

FORMS: dict[str, tuple[str, Any, list[Read]]] = {
    "all fields of a line": (
        "d.jsonl",
        '{"image": "b/ü.png", "captions": ["ein Hund", "犬が走る", "one\u2028two"], "split": "val",'
        ' "id": "photo-7", "metadata": {"licence": "CC0", "stars": [1, 2]}}',
        [
            (
                "photo-7",
                ("ein Hund", "犬が走る", "one\u2028two"),
                "val",
                {"licence": "CC0", "stars": [1, 2]},
            )
        ],
    ),
    "ids are photos as written; blank lines, Windows' line ends and a byte order mark": (
        "d.jsonl",
        '\ufeff{"image": "./b/../a.png"}\r\n\r\n   \r\n{"image": "b.png"}\r\n\r\n',
        [plain("./b/../a.png"), plain("b.png")],
    ),
    "photos of COCO lie in subfolders and have numbers": (
        "d.json",
        karpathy(filepath="val2014", cocoid=391895),
        [("val2014/1.jpg", ("x",), "test", {"cocoid": 391895})],
    ),
    "numbers are text where they are names, and empty cells no metadata": (
        "d.csv",
        "split,id,image,caption,year,licence\nval,7,1,2,1999,CC0\n,,b.jpg,x,,\n",
        [("7", ("2",), "val", {"year": 1999, "licence": "CC0"}), plain("b.jpg", "x")],
    ),
    "rows of one photo that follow one another are its captions": (
        "d.csv",
        "image,caption,n\na.jpg,one,1\na.jpg,two,2\nb.jpg,three,3\nb.jpg,,4\nc.jpg,,5\n",
        [plain("a.jpg", "one", "two", n=1), plain("b.jpg", "three", n=3), plain("c.jpg", n=5)],
    ),
    "quotes around line ends": (
        "d.csv",
        '\ufeffimage,caption\r\n"a,1.jpg","he said ""sit"",\r\nand sat"\r\n\r\nb.jpg,x\r\n',
        [plain("a,1.jpg", 'he said "sit",\r\nand sat'), plain("b.jpg", "x")],
    ),
    "of several columns the first known name counts": (
        "d.csv",
        "title,path,caption,image_path\nT,p.jpg,C,i.jpg\n",
        [plain("i.jpg", "C", title="T", path="p.jpg")],
    ),
    "clip-retrieval's metadata, of all types, in parquet": (
        "d.parquet",
        {
            "image_path": ["a.jpg", "/photos/b.jpg"],
            "key": [12, None],
            "captions": [["one", " ", "two "], None],
            "count": [2**40, None],
            "good": [True, None],
            "price": [Decimal("1.25"), None],
            "taken": [datetime(2020, 1, 2, 3, 4), None],
            "place": [{"country": "IS", "hash": b"\0"}, None],
            "thumbnail": [b"\xff\xd8", None],
            "similarity": [float("nan"), 0.25],
            "__index_level_0__": [7, 8],
        },
        [
            (
                "12",
                ("one", "two"),
                None,
                {
                    "count": 2**40,
                    "good": True,
                    "price": 1.25,
                    "taken": "2020-01-02T03:04:00",
                    "place": {"country": "IS", "hash": None},
                },
            ),
            plain("/photos/b.jpg", similarity=0.25),
        ],
    ),
    "rows of failed downloads, and rows of one photo": (
        "d.parquet",
        {
            "filepath": ["a.jpg", "a.jpg", "b.jpg", "c.jpg"],
            "title": ["one", "two", "three", "four"],
            "status": ["success", "success", "failed_to_download", None],
            "error_message": [None, None, "404", None],
        },
        [plain("a.jpg", "one", "two"), plain("c.jpg", "four")],
    ),
    "captions and fields beside photos of a folder, in the order of paths": (
        "d",
        {
            **dict.fromkeys(["b.JPG", "a.png", "sub/c.webp", ".h/d.png", "failed.png"]),
            "e.md": b"no photo",
            "a.txt": "\ufeffa dog\r\n\r\n  ein Hündchen \r\n".encode(),
            "b.json": b'{"caption": "a cat", "year": 1999, "exif": "x"}',
            "failed.json": b'{"status": "failed_to_resize"}',
            "sub/c.json": b'{"caption": "not this", "split": "val"}',
            "sub/c.txt": b"but this",
        },
        [
            plain("a.png", "a dog", "ein Hündchen"),
            plain("b.JPG", "a cat", year=1999),
            ("sub/c.webp", ("but this",), "val", {}),
        ],
    ),
    "files of other programs neither identify nor describe a photo": (
        "d",
        {
            **dict.fromkeys([f"{number}.png" for number in range(1, 8)]),
            "1.json": b'{"id": 77, "num": 0, "title": "my post"}',
            "2.json": b'{"key": "77", "text": "so long"}',
            "3.json": b'{"status": "published"}',
            "4.json": TAKEOUT,
            "5.json": b'{"id": 77, "title": "my post", "caption": "a dog"}',
            # Labels of a detector, and what only looks like them.
            "6.txt": b"0 0.481 0.634 0.690 0.713\n16 0.741 5.2e-05 0.314 0.933\n",
            "7.txt": b"7 of 9 dogs\n0 1 2 3 4\n",
        },
        [
            plain("1.png", id=77, num=0, title="my post"),
            plain("2.png", key="77", text="so long"),
            *(plain(f"{number}.png") for number in (3, 4)),
            plain("5.png", "a dog", id=77, title="my post"),
            plain("6.png"),
            plain("7.png", "7 of 9 dogs", "0 1 2 3 4"),
        ],
    ),
    "downloads in a tar, their fields before or behind them, beside what is no photo": (
        "d.tar",
        {
            "0.jpg": None,
            "0.json": json.dumps(DOWNLOADED | {"similarity": 0.31}).encode(),
            "0.txt": b"a dog",
            "1.json": json.dumps(DOWNLOADED | {"key": "1"}).encode(),
            "1.png": None,
            "2.json": json.dumps(DOWNLOADED | {"status": "failed_to_download"}).encode(),
            "3.jpg": None,
            "3.json": json.dumps(DOWNLOADED | {"status": "failed_to_resize"}).encode(),
            "README.txt": b"read me",
            "./sub/hündin 犬.webp": None,
            "./sub/hündin 犬.txt": b"one dog\r\n\n two dogs \n",
            "./sub/._hündin.webp": b"what a Mac adds",
            # Names that would unpack elsewhere are only names.
            "/root/a.jpg": None,
            "../b.jpg": None,
        },
        [
            plain("0", "a dog", url="http://host/0.jpg", width=256, similarity=0.31),
            plain("1", "a dog", url="http://host/0.jpg", width=256),
            plain("d.tar/sub/hündin 犬.webp", "one dog", "two dogs"),
            plain("d.tar/root/a.jpg"),
            plain("d.tar/../b.jpg"),
        ],
    ),
}


@pytest.mark.parametrize(("name", "content", "expected"), FORMS.values(), ids=FORMS)
def test_fields_columns_and_files_of_a_format_are_read(
    build: Build, name: str, content: Any, expected: list[Read], tmp_path: Path
) -> None:
    found = list(iter_records(build(name, content), require_captions=False))
    assert [(each.id, each.captions, each.split, each.metadata) for each in found] == expected
    if not name.endswith(".tar"):
        folder = tmp_path / ("d" if name == "d" else "")
        assert [each.photo.path for each in found] == [folder / each.uri for each in found]
    else:
        assert all(each.photo.read().startswith(b"\x89PNG") for each in found)


def test_photos_are_found_from_the_file_and_in_a_folder_of_karpathys_own(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("d.jsonl", json.dumps({"image": str(tmp_path / "a.png")}) + '\n{"image": "b/ü.png"}')
    monkeypatch.chdir(tmp_path.parent)
    found = iter_records(Path(tmp_path.name) / "d.jsonl", require_captions=False)
    assert [each.photo.path for each in found] == [tmp_path / "a.png", tmp_path / "b" / "ü.png"]
    file = build("d.json", karpathy())
    for folder, images in (("elsewhere", tmp_path / "elsewhere"), ("images", None)):
        build(folder, {"1.jpg": None})
        (record,) = read_records(file, images=images)
        assert record.photo.path == tmp_path / folder / "1.jpg"


def test_cells_are_numbers_or_truth_values_only_in_canonical_spelling(build: Build) -> None:
    cells: dict[str, object] = {"12": 12, "-3": -3, "0": 0, "2.50": 2.5, "-1e-3": -0.001}
    cells |= {"true": True, "FALSE": False}
    cells |= {text: text for text in ("007", "+1", "1,5", "1e999", "9" * 20, "nan", "1٢", " 12")}
    rows = "".join(f'{number},"{cell}"\n' for number, cell in enumerate(cells))
    found = iter_records(build("d.csv", f"image,cell\n{rows}"), require_captions=False)
    for record, (cell, value) in zip(found, cells.items(), strict=True):
        read = record.metadata["cell"]
        assert (read, type(read)) == (value, type(value)), cell


def test_texts_alone_are_lines_or_rows(build: Build) -> None:
    line = '\n{"id": "1", "text": "a dög"}\n{"id": "2", "text": "b", "metadata": {"k": 1}}'
    first, second = TextItem(id="1", text="a dög"), TextItem(id="2", text="b", metadata={"k": 1})
    assert list(iter_texts(build("t.jsonl", line))) == [first, second]
    assert list(iter_texts(build("t.csv", "id,text,k\n1,a dög,\n2,b,1\n"))) == [first, second]


def test_the_parquet_beside_a_tar_stands_in_for_json(build: Build, tmp_path: Path) -> None:
    build("s/00000.tar", {f"00000000{n}.jpg": None for n in range(3)})
    columns = {
        "key": ["000000000", "000000001", "000000002"],
        "caption": ["a dog", "a cat", None],
        "status": ["success", "failed_to_resize", "success"],
        "score": [0.5, None, float("nan")],
    }
    build("s/00000.parquet", columns)
    (tmp_path / "s" / "00000_stats.json").write_text('{"count": 3}')
    first, third = read_records(tmp_path / "s", require_captions=False)
    assert (first.id, first.captions, first.metadata) == ("000000000", ("a dog",), {"score": 0.5})
    assert (third.id, third.captions, third.metadata) == ("000000002", (), {})


def test_tars_in_subfolders_have_their_splits(build: Build, tmp_path: Path) -> None:
    for split in ("train", "val"):
        build(f"s/{split}/00000.tar", {"0.jpg": None, "0.txt": split.encode()})
    build("s/more/0.tar", {"0.jpg": None, "0.json": b'{"caption": "x", "split": "val"}'})
    assert [(each.uri, each.split, each.captions) for each in read_records(tmp_path / "s")] == [
        ("more/0.tar/0.jpg", "val", ("x",)),
        ("train/00000.tar/0.jpg", "train", ("train",)),
        ("val/00000.tar/0.jpg", "val", ("val",)),
    ]
    found = iter_records(tmp_path / "*" / "{more,val}" / "0*.tar", require_captions=False)
    assert [each.uri for each in found] == ["s/more/0.tar/0.jpg", "s/val/00000.tar/0.jpg"]


def test_rows_are_read_when_they_are_asked_for(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"{n}.jpg,caption {n}\n" for n in range(5_000))
    table = build("d.csv", f'image,caption\n{lines}x.jpg,"broken\n')
    assert [record.id for record in islice(iter_records(table), 2)] == ["0.jpg", "1.jpg"]
    with pytest.raises(DataError, match=r"d\.csv:5002: not a line of a table"):
        list(iter_records(table))
    rows = 3_000
    columns = {"image": [f"{n}.jpg" for n in range(rows)], "caption": ["x"] * rows}
    batches: list[int] = []
    whole = pyarrow.parquet.ParquetFile.iter_batches

    def counted(*arguments: Any) -> Iterator[Any]:
        for batch in whole(*arguments):
            batches.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", counted)
    records = iter_records(build("d.parquet", columns))
    assert next(records).id == "0.jpg"
    assert (len(batches), sum(1 for _ in records)) == (1, rows - 1)
    assert (max(batches) <= 1024, sum(batches)) == (True, rows)


def test_tars_are_opened_one_after_another_and_photos_are_not_read(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = bytes(2**20)
    for number in range(2):
        photos = {f"{number}-{n}.jpg": large for n in range(3)}
        build(f"s/{number}.tar", photos | {f"{number}-2.txt": b"a dog"})
    opened: list[str] = []
    read: list[int] = []

    def noted(source: Source) -> Iterator[object]:
        opened.append(source.path.name)
        return read_tar(source)

    def counted(file: int, length: int, offset: int) -> bytes:
        read.append(len(data := pread(file, length, offset)))
        return data

    monkeypatch.setattr("aladin_training.data.folder.read_tar", noted)
    monkeypatch.setattr("os.pread", counted)
    records: Iterator[Record] = iter_records(tmp_path / "s", require_captions=False)
    assert opened == []
    assert [record.id for record in islice(records, 3)] == [f"0.tar/0-{n}.jpg" for n in range(3)]
    assert opened == ["0.tar"]
    assert sum(read) == 5 * 512 + len(b"a dog")  # four headers and the end
    assert next(records).id == "1.tar/1-0.jpg"
    assert opened == ["0.tar", "1.tar"]
