"""One data set in every format is the same data set."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.errors import DataError
from aladin_training.data import KNOWN_FORMATS, iter_records, read_records
from aladin_training.data.records import strict_data

CAPTIONS = {"a": ["one dog", "a dog"], "b": ["two, dogs"], "c": ['"three" dogs']}
SPLITS = {"a": "train", "b": "train", "c": "val"}


@pytest.fixture
def sources(
    tmp_path: Path,
    picture: Callable[[int], bytes],
    write_tar: Callable[..., Path],
    write_parquet: Callable[..., Path],
) -> list[Path]:
    """The photos a, b and c, as JSONL, Karpathy JSON, CSV, TSV, parquet, tar and folder."""
    photos = {name: picture(number) for number, name in enumerate(CAPTIONS)}
    for name, content in photos.items():
        (tmp_path / f"{name}.png").write_bytes(content)
        place = tmp_path / "folder" / SPLITS[name]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.png").write_bytes(content)
        (place / f"{name}.txt").write_text("\n".join(CAPTIONS[name]))
        (place / f"{name}.json").write_text(json.dumps({"n": 1}))
    lines = [
        {"image": f"{n}.png", "captions": CAPTIONS[n], "split": SPLITS[n], "metadata": {"n": 1}}
        for n in CAPTIONS
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    karpathy = [
        {
            "filename": f"{n}.png",
            "split": {"train": "restval"}.get(SPLITS[n], SPLITS[n]),
            "sentences": [{"raw": caption} for caption in CAPTIONS[n]],
        }
        for n in CAPTIONS
    ]
    (tmp_path / "a.json").write_text(json.dumps({"images": karpathy}))
    for name, delimiter in (("a.csv", ","), ("a.tsv", "\t")):
        text = io.StringIO()
        table = csv.writer(text, delimiter=delimiter)
        table.writerow(["filepath", "title", "split", "n"])
        for n, captions in CAPTIONS.items():
            table.writerows([f"{n}.png", caption, SPLITS[n], 1] for caption in captions)
        (tmp_path / name).write_text(text.getvalue())
    columns = {
        "image_path": [f"{n}.png" for n in CAPTIONS],
        "captions": list(CAPTIONS.values()),
        "split": [SPLITS[n] for n in CAPTIONS],
        "n": [1, 1, 1],
    }
    members: list[tuple[str, bytes]] = []
    for n, captions in CAPTIONS.items():
        members.append((f"{n}.png", photos[n]))
        members.append((f"{n}.txt", "\n".join(captions).encode()))
        details = {"id": f"{n}.png", "n": 1, "split": SPLITS[n]}
        members.append((f"{n}.json", json.dumps(details).encode()))
    return [
        tmp_path / "a.jsonl",
        tmp_path / "a.json",
        tmp_path / "a.csv",
        tmp_path / "a.tsv",
        write_parquet("a.parquet", columns),
        write_tar("a.tar", members),
        tmp_path / "folder",
    ]


def test_the_same_records_from_every_format(
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
        with pytest.raises(DataError, match=r"no split 'test', known are \['train', 'val'\]"):
            read_records(source, "test")


def test_several_files_of_one_pattern_are_one_source(sources: list[Path], tmp_path: Path) -> None:
    assert {path.suffix for path in sources} >= {".csv", ".tsv"}
    records = list(iter_records(tmp_path / "a.{csv,tsv}"))
    assert [record.id for record in records] == ["a.png", "b.png", "c.png"] * 2
    with (
        strict_data(True),
        pytest.raises(DataError, match=r"a\.tsv:2: id 'a\.png' repeats, first used at .*a\.csv"),
    ):
        read_records(tmp_path / "a.{csv,tsv}")


def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    file = tmp_path / "photos.xlsx"
    file.touch()
    with pytest.raises(DataError) as failure:
        iter_records(file)
    assert str(failure.value) == f"{file}: expected {KNOWN_FORMATS}"


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
