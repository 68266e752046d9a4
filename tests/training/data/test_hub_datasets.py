"""Data sets of Hugging Face: saved folders and names, photos read in place, columns chosen."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_network.errors import DataError
from aladin_network.types import NullProgress
from aladin_training.data import iter_records, read_records
from aladin_training.data.hub_datasets.names import is_dataset, parse_name
from aladin_training.data.records import SkippedPhoto
from aladin_training.data.texts import iter_texts
from aladin_training.streaming.tar_stream import open_stream, read_samples


def photo(number: int) -> bytes:
    target = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (8, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(target, "PNG")
    return target.getvalue()


def save(folder: Path, columns: dict[str, list[Any]], images: tuple[str, ...] = ("image",)) -> Path:
    """Save columns as a data set whose named ones have the feature ``Image``."""
    from datasets import Dataset, Features
    from datasets import Image as ImageFeature

    dataset = Dataset.from_dict(columns)
    features = Features(dataset.features | {name: ImageFeature() for name in images})
    Dataset.from_dict(columns, features=features).save_to_disk(folder)
    return folder


def test_names_have_options_after_commas() -> None:
    name = parse_name(Path("datasets:owner/name,captions=caption_0+caption_1,image=img"))

    assert name.name == "owner/name"
    assert name.options == {"captions": "caption_0+caption_1", "image": "img"}
    assert parse_name(Path("datasets:a,b/c")).name == "a,b/c"
    assert not is_dataset(Path("owner/name"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("datasets:", "expected datasets:NAME"),
        ("datasets:name,column=x", "config=, revision=, image=, captions=, id=, streaming=, "),
        ("datasets:name,streaming=yes", "streaming: expected true or false, got 'yes'"),
        ("datasets:name,split=train", "split= needs streaming=true"),
        ("datasets:name,streaming=false,rows=5", "rows= needs streaming=true"),
        ("datasets:name,streaming=true,rows=0", "rows: expected a number of at least 1, got '0'"),
        ("datasets:name,streaming=true,split=../x", "split: expected the name of one split"),
        ("datasets:name,image=", "'image' has no value"),
        ("datasets:name,id=a,id=b", "'id' is given twice"),
    ],
)
def test_wrong_names_say_what_is_expected(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_name(Path(source))


@pytest.mark.clients
def test_photos_of_a_saved_folder_are_read_in_place(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
    from datasets import Image as ImageFeature

    features = Features(
        image=ImageFeature(),
        caption=List(Value("string")),
        label=ClassLabel(names=["cat", "dog"]),
        year=Value("int32"),
    )

    def rows(first: int, last: int) -> Dataset:
        columns = {
            "image": [{"bytes": photo(n), "path": None} for n in range(first, last)],
            "caption": [[f"a {n}", f"b {n}", " "] for n in range(first, last)],
            "label": [n % 2 for n in range(first, last)],
            "year": list(range(first, last)),
        }
        return Dataset.from_dict(columns, features=features)

    splits = {"train": rows(0, 2005), "validation": rows(2005, 2030).shuffle(seed=1)}
    counts = {"train": 3, "validation": 1}
    DatasetDict(splits).save_to_disk(tmp_path / "saved", num_shards=counts)

    records = read_records(tmp_path / "saved")

    assert [record.split for record in records] == ["train"] * 2005 + ["val"] * 25
    assert [records[0].id, records[2004].id, records[-1].id] == ["train/0", "train/2004", "val/24"]
    assert {record.metadata["year"] for record in records} == set(range(2030))
    for record in records:
        number = record.metadata["year"]
        assert record.captions == (f"a {number}", f"b {number}")
        assert record.metadata["label"] == ("cat", "dog")[number % 2]
        assert record.photo.read() == photo(number)
    assert read_records(tmp_path / "saved", "val") == records[2005:]

    stream = open_stream(tmp_path / "saved", "train", tmp_path / "cache", NullProgress())
    samples = list(read_samples(stream, 1990, lambda number: number % 2 == 0))
    assert [count.photos for count in stream.counts] == [669, 668, 668, 0]
    assert [each.content for each in samples] == [
        photo(n) if n % 2 == 0 else None for n in range(1990, 2005)
    ]
    assert list(stream.captions())[:2] == ["a 0", "b 0"]


@pytest.mark.clients
def test_a_name_is_loaded_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    from datasets import Dataset, Features, Value
    from datasets import Image as ImageFeature

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    features = Features(image=ImageFeature(), key=Value("int64"), caption=Value("string"))
    rows = {
        "image": [{"bytes": photo(n // 2), "path": f"{n}.png"} for n in range(4)],
        "key": [7, 7, 8, 8],
        "caption": ["one", "two", "three", "four"],
    }
    (tmp_path / "hub").mkdir()
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "hub" / "test-00000.parquet")

    source = Path(f"datasets:{tmp_path / 'hub'},id=key")
    first, second = read_records(source, "test")

    assert (first.id, first.captions) == ("7", ("one", "two"))
    assert (second.id, second.captions) == ("8", ("three", "four"))
    assert second.photo.read() == photo(1)
    assert second.photo.path.is_relative_to(tmp_path / "cache")
    with pytest.raises(DataError, match="has no split 'val', known are \\['test'\\]"):
        read_records(source, "val")


@pytest.mark.clients
def test_photos_beside_the_data_set_and_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(photo(0))
    images = [
        {"bytes": None, "path": str(tmp_path / "0.png")},
        {"bytes": None, "path": "https://example.org/1.png"},
        {"bytes": None, "path": None},
        {"bytes": photo(3), "path": None},
    ]
    from datasets import Dataset

    # Structs without the feature: save_to_disk would download and embed the second photo.
    Dataset.from_dict({"photo": images, "text": list("abcd")}).save_to_disk(tmp_path / "saved")
    skipped: list[SkippedPhoto] = []
    source = Path(f"datasets:{tmp_path}/saved,image=photo")

    records = list(iter_records(source, on_skip=skipped.append))

    assert [record.photo.read() for record in records] == [photo(0), photo(3)]
    assert [each.name for each in skipped] == ["1", "2"]
    assert "not on this machine" in skipped[0].reason
    assert skipped[1].reason == "the row has no photo"


@pytest.mark.clients
def test_columns_are_chosen_or_listed(tmp_path: Path) -> None:
    pictures = [{"bytes": photo(0), "path": None}]
    columns = {"front": pictures, "back": pictures, "note": ["n"], "caption_0": ["x"]}
    columns |= {"caption_1": ["y"], "number": [3]}
    two = save(tmp_path / "two", columns, ("front", "back"))

    with pytest.raises(DataError, match="2 columns of photos, choose one with image=") as caught:
        read_records(two)
    assert all(repr(name) in str(caught.value) for name in columns)
    (record,) = read_records(Path(f"datasets:{two},image=back"))
    assert record.captions == ("x", "y")
    assert record.metadata == {"note": "n", "number": 3}
    (record,) = read_records(Path(f"datasets:{two},image=back,captions=note,id=number"))
    assert (record.id, record.captions) == ("3", ("n",))
    with pytest.raises(DataError, match="no column 'photo': its columns are 'front', 'back'"):
        read_records(Path(f"datasets:{two},image=photo"))
    with pytest.raises(DataError, match="'number': expected texts or lists of texts, got int64"):
        read_records(Path(f"datasets:{two},image=back,captions=number"))
    bare = save(tmp_path / "bare", {"image": pictures, "note": ["n"]})
    with pytest.raises(DataError, match=r"captions=COLUMN, of 'image', 'note'\): photo '0' has no"):
        read_records(bare)
    numbers = save(tmp_path / "numbers", {"number": [1]}, ())
    with pytest.raises(DataError, match="expected a column of photos or of texts"):
        read_records(numbers)
    with pytest.raises(DataError, match="cannot be opened by datasets"):
        read_records(Path(f"datasets:{tmp_path}/none"))


@pytest.mark.clients
def test_texts_without_photos(tmp_path: Path) -> None:
    folder = save(tmp_path / "texts", {"id": ["a", "b"], "text": ["one", "two"], "n": [1, 2]}, ())

    texts = list(iter_texts(folder))

    assert [(text.id, text.text, text.metadata) for text in texts] == [
        ("a", "one", {"n": 1}),
        ("b", "two", {"n": 2}),
    ]
    with pytest.raises(DataError, match="expected a column of photos, got the columns 'id'"):
        read_records(folder)
