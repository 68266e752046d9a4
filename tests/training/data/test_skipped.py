"""Files that look like photos and are not read, and what a data set does without them."""

from __future__ import annotations

import json
import logging
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, features

from aladin_network.errors import DataError
from aladin_network.photos.decoding import read_image
from aladin_training.data import iter_records, read_records
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.records import SkippedPhoto
from aladin_training.data.texts import iter_texts
from aladin_training.streaming.shards import TarShard, count_shard
from tests.training.data.conftest import Build


def read(source: Path, split: str | None = None) -> tuple[list[str], list[SkippedPhoto]]:
    skipped: list[SkippedPhoto] = []
    records = iter_records(source, split, require_captions=False, on_skip=skipped.append)
    return [record.id for record in records], skipped


@pytest.fixture
def photos(build: Build) -> Path:
    """A folder with one photo that can be read."""
    return build("photos", {"good.png": None})


def test_photos_of_formats_that_are_not_read_are_skipped_and_other_files_passed_over(
    build: Build, photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unread = {"a.jxl": "JPEG XL", "b.JXL": "JPEG XL", "c.jp2": "JPEG 2000", "sub/d.wdp": "JPEG XR"}
    others = ("good.txt", "notes.md", "clip.mov", ".hidden.jxl")
    build("photos", dict.fromkeys([*unread, *others], b"x"))
    (photos / "link.md").symlink_to("nowhere.md")
    ids, skipped = read(photos)
    assert ids == ["good.png"]
    assert {each.name: each.reason for each in skipped} == {
        name: f"{form} cannot be read" for name, form in unread.items()
    }
    with caplog.at_level(logging.WARNING):
        list(iter_records(photos, require_captions=False))
    assert caplog.messages[0] == "skipped a.jxl: JPEG XL cannot be read"


def test_links_that_lead_nowhere_or_to_no_file_are_named_by_what_they_lead_to(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "sub").mkdir()
    links = {
        "a.jpg": "gone.jpg",
        "circle.jpg": "circle.jpg",
        "more": "sub",
        "round": ".",
        "unmounted": "/nowhere/photos",
        "linked.png": "good.png",
        "piped.jpg": "pipe.png",
        "zero.jpg": "/dev/zero",
        "null": "/dev/null",
        "notes.md": "/dev/zero",
    }
    for name, target in links.items():
        (photos / name).symlink_to(target)
    os.mkfifo(photos / "pipe.png")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(photos)  # a socket's path has at most 107 bytes
        listener.bind("socket.tif")
    ids, skipped = read(photos)
    assert ids == ["good.png", "linked.png"]
    folder = "a link to a folder, which is not followed; name that folder as a source"
    assert {photo.name: photo.reason for photo in skipped} == {
        "a.jpg": "a broken link",
        "circle.jpg": "a broken link",
        "more": folder,
        "round": folder,
        "unmounted": "a broken link",
        "pipe.png": "a pipe, not a file",
        "piped.jpg": "a link to a pipe, not a file",
        "zero.jpg": "a link to a device, not a file",
        "null": "a link to a device, not a file",
        "socket.tif": "a socket, not a file",
    }


def test_a_name_that_cannot_be_an_id_is_skipped_even_with_an_id_beside_it(photos: Path) -> None:
    for stem in (b"caf\xe9", b"new\nline"):
        photo = photos / os.fsdecode(stem + b".png")
        photo.write_bytes((photos / "good.png").read_bytes())
        photo.with_suffix(".json").write_text('{"id": "mine"}')
    ids, skipped = read(photos)
    assert ids == ["good.png"]
    assert sorted(photo.name for photo in skipped) == ["caf\\xe9.png", "new\\nline.png"]
    assert all("rename the file" in photo.reason for photo in skipped)


def test_only_skipped_photos_of_the_split_count(build: Build, photos: Path) -> None:
    build("photos", {"train/a.jxl": b"x", "test/a.jxl": b"x", "train/b.png": None})
    ids, skipped = read(photos, "train")
    assert ids == ["train/b.png"]
    assert [photo.name for photo in skipped] == ["train/a.jxl"]
    for reader in (read, read_records):
        with pytest.raises(
            DataError, match=r"no photo that can be read: 1 skipped, .* test/a\.jxl"
        ):
            reader(photos, "test")


def test_other_suffixes_of_photos_are_read(photos: Path) -> None:
    Image.new("RGB", (4, 4)).save(photos / "b.jfif", "JPEG")
    Image.new("RGB", (4, 4)).save(photos / "c.jpe", "JPEG")
    assert read(photos) == (["b.jfif", "c.jpe", "good.png"], [])
    if features.check("avif"):
        Image.new("RGB", (16, 12), "red").save(photos / "a.AVIF", "AVIF")
        assert read(photos)[0] == ["a.AVIF", "b.jfif", "c.jpe", "good.png"]
        assert read_image(photos / "a.AVIF").size == (16, 12)


@pytest.mark.parametrize("suffix", [".txt", ".json"])
def test_a_large_file_beside_a_photo_is_not_read(
    photos: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = (photos / "good.png").with_suffix(suffix)
    side.write_text('{"caption": "a dog"}')
    os.truncate(side, 65_537)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))
    skipped: list[SkippedPhoto] = []
    (record,) = iter_records(
        photos, require_captions=False, on_skip=skipped.append, rules=FolderRules()
    )
    assert record.captions == ()
    reason = "not used for its photo: 65537 bytes, at most 65536 are read beside a photo"
    assert [each[:2] for each in skipped] == [(side.name, reason)]


def test_folders_are_listed_when_they_are_reached(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build("d", dict.fromkeys(["a/1.png", "b/2.png", "c.png"]))
    listed: list[str] = []
    scandir = os.scandir

    def noted(folder: Path) -> object:
        listed.append(Path(folder).name)
        return scandir(folder)

    monkeypatch.setattr("os.scandir", noted)
    records = iter_records(folder, require_captions=False)
    assert next(records).id == "a/1.png"
    assert listed == ["d", "a"]
    assert [record.id for record in records] == ["b/2.png", "c.png"]


def test_members_of_a_tar_are_skipped_as_files_of_a_folder(
    write_tar: Callable[..., Path], tmp_path: Path
) -> None:
    names = ["b.jxl", "caf\udce9.jpg", "d\n.jpg", "g.jpg"]
    members = ["a.jpg", *names[:3], "b.txt", "caf\udce9.txt", "._e.jxl", "f.mov"]
    path = write_tar("train/0.tar", [(name, b"x") for name in sorted(members)])
    with tarfile.open(path, "a") as tar:
        for name, kind in (("g.jpg", tarfile.LNKTYPE), ("h.txt", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a.jpg"
            tar.addfile(info)
    ids, skipped = read(tmp_path)
    assert ids == ["train/0.tar/a.jpg"]
    shown = ["b.jxl", "caf\\xe9.jpg", "d\\n.jpg", "g.jpg"]
    assert {photo.name: photo.split for photo in skipped} == dict.fromkeys(
        [f"train/0.tar/{name}" for name in shown], "train"
    )


def test_a_stream_names_what_it_skips_once_when_it_counts(
    build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tar = build("0.tar", {"a.png": None, "a.txt": b"a dog", "b.jxl": b"x"})
    shard = TarShard(tar, tmp_path, None)
    with caplog.at_level(logging.WARNING):
        assert count_shard(shard).photos == 1
        assert len(list(shard.records())) == 1
    assert [message.split(": ")[0] for message in caplog.messages] == ["skipped 0.tar/b.jxl"]


def lines_of(build: Build, bad: int, good: int, bad_line: str) -> Path:
    used = [json.dumps({"id": str(n), "image": "a.png", "captions": ["a"]}) for n in range(good)]
    return build("data.jsonl", "\n".join([bad_line] * bad + used))


@pytest.mark.parametrize(
    "line",
    ["no JSON", '{"image": "gone.png", "captions": ["a"]}', '{"image": "a.png", "captions": []}'],
)
def test_half_of_the_photos_may_be_unusable_and_three_of_a_kind_are_named(
    build: Build, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(read_records(lines_of(build, 50, 50, line))) == 50
    assert [message.split(": ")[0] for message in caplog.messages] == [
        *(f"skipped data.jsonl:{number}" for number in (1, 2, 3)),
        "skipped 47 more",
    ]
    expected = (
        r"data\.jsonl: 5 of 9 photos cannot be used, more than half; the first: .*data\.jsonl:1: "
    )
    with pytest.raises(DataError, match=expected):
        read_records(lines_of(build, 5, 4, line))


def test_a_blank_caption_is_named_and_the_others_keep_their_ids(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    line = {"image": "a.png", "id": "A", "captions": ["one", " ", "three"]}
    file = lines_of(build, 1, 1, json.dumps(line))
    first, _ = read_records(file)
    assert (first.captions, first.caption_ids) == (("one", "three"), ["A#0", "A#2"])
    assert caplog.messages == ["skipped data.jsonl:1: captions[1]: is blank"]
    assert [text.id for text in iter_texts(file)] == ["A#0", "A#2", "0#0"]
