"""Data sets in the streaming mode of Hugging Face's library: rows selected, kept, continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import DataError
from aladin_network.types import NullProgress
from aladin_training.data import read_records
from aladin_training.data.hub_datasets import streamed
from aladin_training.data.texts import iter_texts
from aladin_training.streaming.tar_stream import open_stream, read_samples
from tests.training.data.test_hub_datasets import photo

pytestmark = pytest.mark.clients


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library's cache."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "aladin-streamed"


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A folder of parquet files as the hub has them: 40 training rows in 4 files, 5 others."""
    from datasets import ClassLabel, Dataset, Features, List, Value
    from datasets import Image as ImageFeature

    features = Features(
        image=ImageFeature(),
        captions=List(Value("string")),
        label=ClassLabel(names=["cat", "dog"]),
        n=Value("int32"),
    )
    (tmp_path / "hub").mkdir()
    for split, parts in (("train", 4), ("validation", 1)):
        for part in range(parts):
            numbers = range(10 * part, 10 * part + (10 if parts > 1 else 5))
            rows = {
                "image": [{"bytes": photo(n), "path": f"{n}.png"} for n in numbers],
                "captions": [[f"a {n}", f"b {n}"] for n in numbers],
                "label": [n % 2 for n in numbers],
                "n": list(numbers),
            }
            file = tmp_path / "hub" / f"{split}-{part:05d}-of-{parts:05d}.parquet"
            Dataset.from_dict(rows, features=features).to_parquet(file)
    return tmp_path / "hub"


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("the data set is opened again")


def test_rows_are_streamed_once_and_read_in_place(
    hub: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(streamed, "_BATCH_ROWS", 4)
    monkeypatch.setattr(streamed, "_FILE_ROWS", 8)
    source = Path(f"datasets:{hub},streaming=true,split=train,rows=23")
    records = read_records(source)

    assert [record.id for record in records] == [f"train/{n}" for n in range(23)]
    for number, record in enumerate(records):
        assert record.photo.read() == photo(number)
        assert record.photo.path.is_relative_to(cache)
        assert record.captions == (f"a {number}", f"b {number}")
        assert record.metadata == {"label": ("cat", "dog")[number % 2], "n": number}
    assert len({record.photo.path for record in records}) == 3  # 8, 8 and 7 rows

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    assert read_records(source, "train") == records
    # Other columns of the same rows are in the same files.
    named = read_records(Path(f"{source},id=n"))
    assert [record.id for record in named] == [str(n) for n in range(23)]
    stream = open_stream(source, "train", tmp_path / "counts", NullProgress())
    samples = read_samples(stream, 0, lambda _: True)
    assert [each.content for each in samples] == [photo(n) for n in range(23)]


@pytest.mark.usefixtures("cache")
def test_only_the_files_with_the_rows_are_opened(hub: Path) -> None:
    # What cannot be read would end a download of everything.
    for part in (1, 2, 3):
        (hub / f"train-{part:05d}-of-00004.parquet").write_bytes(b"no parquet")
    some = f"datasets:{hub},streaming=true,split=train,rows="

    assert len(read_records(Path(f"{some}10"))) == 10
    with pytest.raises(DataError, match=r"cannot be streamed by datasets \("):
        read_records(Path(f"{some}11"))


def test_an_interrupted_download_continues_after_its_last_file(
    hub: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "_BATCH_ROWS", 5)
    monkeypatch.setattr(streamed, "_FILE_ROWS", 10)
    written: list[str] = []
    whole = streamed._write

    def write(file: Path, *given: Any) -> int:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(file.name)
        return whole(file, *given)

    source = Path(f"datasets:{hub},streaming=true")
    with monkeypatch.context() as patch:
        patch.setattr(streamed, "_write", write)
        with pytest.raises(DataError, match="No space left on device"):
            read_records(source)
    (folder,) = cache.iterdir()
    before = {file: file.stat().st_mtime_ns for file in (folder / "train").iterdir()}
    assert [file.name for file in sorted(before)] == written == ["00000.arrow", "00001.arrow"]
    assert not (folder / "complete.json").exists()

    records = read_records(source)

    assert [record.metadata["n"] for record in records] == [*range(40), *range(5)]
    assert {record.split for record in records} == {"train", "val"}
    assert all(file.stat().st_mtime_ns == time for file, time in before.items())
    assert records[39].photo.read() == photo(39)


def test_photos_in_files_and_texts_alone(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "photos" / "train"
    folder.mkdir(parents=True)
    lines = [json.dumps({"file_name": f"{n}.png", "text": f"photo {n}"}) for n in range(3)]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    for number in range(3):
        (folder / f"{number}.png").write_bytes(photo(number))
    records = read_records(Path(f"datasets:{folder.parent},streaming=true"))
    assert [record.captions for record in records] == [(f"photo {n}",) for n in range(3)]
    # Photos beside the table are embedded: where they come from need not be there later.
    assert {record.photo.read() for record in records} == {photo(n) for n in range(3)}
    assert all(record.photo.path.is_relative_to(cache) for record in records)

    (tmp_path / "texts").mkdir()
    lines = [json.dumps({"id": f"t{n}", "text": f"text {n}"}) for n in range(4)]
    (tmp_path / "texts" / "train.jsonl").write_text("\n".join(lines))
    source = Path(f"datasets:{tmp_path / 'texts'},streaming=true,rows=3")
    assert [(each.id, each.text) for each in iter_texts(source)] == [
        (f"t{n}", f"text {n}") for n in range(3)
    ]
    # A changed folder is another data set.
    (tmp_path / "texts" / "train.jsonl").write_text(lines[3])
    assert [each.id for each in iter_texts(source)] == ["t3"]


def test_what_cannot_be_streamed(tmp_path: Path, hub: Path, cache: Path) -> None:
    from datasets import Dataset

    Dataset.from_dict({"text": ["a"]}).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match="a saved folder has no streaming"):
        read_records(Path(f"datasets:{tmp_path}/saved,streaming=true"))
    with pytest.raises(DataError, match="cannot be streamed by datasets"):
        read_records(Path(f"datasets:{tmp_path}/none,streaming=true"))
    with pytest.raises(DataError, match=r"cannot be streamed by datasets \(.*dev"):
        read_records(Path(f"datasets:{hub},streaming=true,split=dev"))
    assert cache.is_dir()
