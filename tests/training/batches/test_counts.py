"""How many photos a tar holds: from img2dataset's word for it, or read once and remembered."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.errors import DataError
from aladin_network.types import NullProgress
from aladin_training.data.records import Source
from aladin_training.streaming import shards as shards_module
from aladin_training.streaming.shards import ShardCount, TarShard, count_shards, find_shards

Picture = Callable[[int], bytes]
WriteTar = Callable[..., Path]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tars that are read."""
    names: list[str] = []
    read_tar = shards_module.read_tar

    def recorded(source: Source) -> object:
        names.append(source.path.name)
        return read_tar(source)

    monkeypatch.setattr(shards_module, "read_tar", recorded)
    return names


def counted(source: Path, cache: Path, split: str | None = None) -> list[ShardCount]:
    return count_shards(find_shards(source, split), cache, NullProgress())


def test_tars_are_read_once_until_they_change(
    numbered_tars: Callable[..., Path], tmp_path: Path, reads: list[str]
) -> None:
    folder = numbered_tars([2, 0, 3])
    cache = tmp_path / "cache"
    expected = [ShardCount(2), ShardCount(0), ShardCount(3)]
    assert counted(folder, cache) == expected
    assert reads == ["00000.tar", "00001.tar", "00002.tar"]
    assert counted(folder, cache) == expected
    assert len(reads) == 3
    os.utime(folder / "00002.tar", ns=(0, 1))
    assert counted(folder, cache) == expected
    assert reads[3:] == ["00002.tar"]
    for file in cache.iterdir():
        file.write_text("{")  # a damaged cache is only slower
    assert counted(folder, cache) == expected
    assert len(reads) == 7


def test_img2dataset_says_how_many_it_downloaded(
    numbered_tars: Callable[..., Path], tmp_path: Path, reads: list[str]
) -> None:
    folder = numbered_tars([2, 3])
    stats = {"count": 9, "successes": 2, "failed_to_download": 7}
    (folder / "00000_stats.json").write_text(json.dumps(stats))
    (folder / "00001_stats.json").write_text("[]")
    assert counted(folder, tmp_path / "cache") == [ShardCount(2, None), ShardCount(3)]
    assert reads == ["00001.tar"]


def test_photos_of_another_split_or_without_captions_do_not_count(
    write_tar: WriteTar, picture: Picture, tmp_path: Path, reads: list[str]
) -> None:
    train, val = json.dumps({"split": "train"}), json.dumps({"split": "val"})
    write_tar(
        "data/a.tar",
        [
            ("0.png", picture(0)),
            ("0.json", train.encode()),
            ("0.txt", b"one"),
            ("1.png", picture(1)),
            ("1.json", val.encode()),
            ("1.txt", b"one"),
            ("2.png", picture(2)),
            ("2.json", train.encode()),
        ],
    )
    write_tar("data/train/b.tar", [("3.png", picture(3)), ("3.txt", b"one")])
    write_tar("data/val/c.tar", [("4.png", picture(4)), ("4.txt", b"one")])
    stats = json.dumps({"successes": 1})
    for name in ("a", "train/b", "val/c"):
        (tmp_path / "data" / f"{name}_stats.json").write_text(stats)
    found = counted(tmp_path / "data", tmp_path / "cache", "train")
    assert found == [ShardCount(1, without_captions=1), ShardCount(1, None), ShardCount(0)]
    # What img2dataset counted is of the split only where the folder says so.
    assert reads == ["a.tar", "c.tar"]


def test_a_tar_that_was_cut_short_is_refused_whatever_was_counted(
    numbered_tars: Callable[..., Path], tmp_path: Path
) -> None:
    folder = numbered_tars([3])
    tar = folder / "00000.tar"
    (folder / "00000_stats.json").write_text(json.dumps({"successes": 3}))
    tar.write_bytes(tar.read_bytes()[:2100])
    with pytest.raises(DataError, match=r"00000\.tar: cut short"):
        counted(folder, tmp_path / "cache")


def test_shards_are_found_as_other_readers_find_them(
    numbered_tars: Callable[..., Path], tmp_path: Path
) -> None:
    folder = numbered_tars([1, 1, 1])
    (folder / "sub").mkdir()
    (folder / "00001.tar").rename(folder / "sub" / "z.tar")
    assert [each.name for each in find_shards(folder, None)] == [
        "00000.tar",
        "00002.tar",
        "sub/z.tar",
    ]
    assert [each.name for each in find_shards(folder / "{00000,00002}.tar", None)] == [
        "00000.tar",
        "00002.tar",
    ]
    (only,) = find_shards(folder / "00000.tar", "val")
    assert only == TarShard(folder / "00000.tar", folder, "val")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="expected tars to stream, found none"):
        find_shards(tmp_path / "empty", None)
    (tmp_path / "list.csv").write_text("image,caption\n")
    with pytest.raises(DataError, match="only tars are streamed"):
        find_shards(tmp_path / "list.csv", None)
