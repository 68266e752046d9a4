"""Files that look like photos and are not read."""

from __future__ import annotations

import io
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
from aladin_training.data.records import SkippedPhoto
from aladin_training.data.texts import iter_texts
from aladin_training.streaming.shards import TarShard, count_shard

WriteTar = Callable[..., Path]


def read(source: Path, split: str | None = None) -> tuple[list[str], list[SkippedPhoto]]:
    """Ids of the photos of a source, and what was skipped."""
    skipped: list[SkippedPhoto] = []
    records = iter_records(source, split, require_captions=False, on_skip=skipped.append)
    return [record.id for record in records], skipped


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with one photo that can be read."""
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.new("RGB", (4, 4)).save(folder / "good.png")
    return folder


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.jxl", "JPEG XL"),
        ("a.JXL", "JPEG XL"),
        ("sub/a.wdp", "JPEG XR"),
        ("a.jp2", "JPEG 2000"),
    ],
)
def test_a_photo_of_a_format_that_is_not_read(photos: Path, name: str, reason: str) -> None:
    (photos / name).parent.mkdir(exist_ok=True)
    (photos / name).write_bytes(b"x")
    ids, [skipped] = read(photos)
    assert ids == ["good.png"]
    assert skipped.name == name
    assert reason in skipped.reason
    assert str(photos) not in skipped.reason


def test_files_that_are_no_photos_are_passed_over_silently(photos: Path) -> None:
    for name in ("good.txt", "notes.md", "clip.mov", ".hidden.jxl"):
        (photos / name).write_bytes(b"x")
    (photos / "link.md").symlink_to("nowhere.md")
    assert read(photos) == (["good.png"], [])


def test_links_that_lead_nowhere_or_to_no_file_are_named_by_what_they_lead_to(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "sub").mkdir()
    (photos / "a.jpg").symlink_to("gone.jpg")
    (photos / "circle.jpg").symlink_to("circle.jpg")
    (photos / "more").symlink_to("sub")
    (photos / "unmounted").symlink_to("/nowhere/photos")
    (photos / "linked.png").symlink_to("good.png")
    os.mkfifo(photos / "pipe.png")
    (photos / "piped.jpg").symlink_to("pipe.png")
    (photos / "zero.jpg").symlink_to("/dev/zero")
    (photos / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(photos)  # a socket's path has at most 107 bytes
        listener.bind("socket.tif")
    (photos / "notes.md").symlink_to("/dev/zero")
    ids, skipped = read(photos)
    assert ids == ["good.png", "linked.png"]
    folder = "a link to a folder, which is not followed; name that folder as a source"
    assert {photo.name: photo.reason for photo in skipped} == {
        "a.jpg": "a broken link",
        "circle.jpg": "a broken link",
        "more": folder,
        "unmounted": "a broken link",
        "pipe.png": "a pipe, not a file",
        "piped.jpg": "a link to a pipe, not a file",
        "zero.jpg": "a link to a device, not a file",
        "null": "a link to a device, not a file",
        "socket.tif": "a socket, not a file",
    }


def test_a_name_that_cannot_be_an_id(photos: Path) -> None:
    for name in (b"caf\xe9.png", b"new\nline.png"):
        (photos / os.fsdecode(name)).write_bytes((photos / "good.png").read_bytes())
    ids, skipped = read(photos)
    assert ids == ["good.png"]
    assert sorted(photo.name for photo in skipped) == ["caf\\xe9.png", "new\\nline.png"]
    assert all("rename the file" in photo.reason for photo in skipped)


def test_an_id_in_a_file_beside_a_photo_does_not_make_up_for_its_name(photos: Path) -> None:
    for stem in ("new\nline", os.fsdecode(b"caf\xe9")):
        (photos / f"{stem}.png").write_bytes((photos / "good.png").read_bytes())
        (photos / f"{stem}.json").write_text('{"id": "mine"}')
    ids, skipped = read(photos)
    assert ids == ["good.png"]
    assert [photo.name for photo in skipped] == ["caf\\xe9.png", "new\\nline.png"]


def test_only_skipped_photos_of_the_split_count(photos: Path) -> None:
    for folder in ("train", "test"):
        (photos / folder).mkdir()
        (photos / folder / "a.jxl").write_bytes(b"x")
    Image.new("RGB", (4, 4)).save(photos / "train" / "b.png")
    ids, skipped = read(photos, "train")
    assert ids == ["train/b.png"]
    assert [photo.name for photo in skipped] == ["train/a.jxl"]
    with pytest.raises(DataError, match=r"no photo that can be read: 1 skipped, e\.g\. test/a"):
        read(photos, "test")


def test_a_folder_without_any_other_photo_says_so(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jxl").write_bytes(b"x")
    expected = r"holds no photo that can be read: 3 skipped, e\.g\. 0\.jxl: JPEG XL cannot be read"
    with pytest.raises(DataError, match=expected):
        read(tmp_path)
    with pytest.raises(DataError, match=expected):
        read_records(tmp_path)


def test_readers_without_a_report_of_their_own_log_it(
    photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (photos / "a.jxl").write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        read_records(photos, require_captions=False)
    assert caplog.messages == ["skipped a.jxl: JPEG XL cannot be read"]


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_avif_is_a_photo_where_pillow_reads_it(photos: Path) -> None:
    Image.new("RGB", (16, 12), "red").save(photos / "a.AVIF", "AVIF")
    assert read(photos) == (["a.AVIF", "good.png"], [])
    decoded = read_image(photos / "a.AVIF")
    assert (decoded.mode, decoded.size) == ("RGB", (16, 12))


def test_other_suffixes_of_jpeg(photos: Path) -> None:
    for name in ("a.jfif", "b.jpe"):
        Image.new("RGB", (4, 4)).save(photos / name, "JPEG")
    assert read(photos) == (["a.jfif", "b.jpe", "good.png"], [])


def test_members_of_a_tar(write_tar: WriteTar, tmp_path: Path) -> None:
    path = write_tar(
        "train/0.tar",
        [
            ("a.jpg", b"x"),
            ("b.jxl", b"x"),
            ("b.txt", b"a dog"),
            ("caf\udce9.jpg", b"x"),
            ("caf\udce9.txt", b"a cat"),
            ("d\n.jpg", b"x"),
            ("._e.jxl", b"x"),
            ("f.mov", b"x"),
        ],
    )
    with tarfile.open(path, "a") as tar:
        for name, kind in (("g.jpg", tarfile.LNKTYPE), ("h.txt", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a.jpg"
            tar.addfile(info)
    ids, skipped = read(tmp_path)
    assert ids == ["train/0.tar/a.jpg"]
    assert {photo.name: photo.split for photo in skipped} == dict.fromkeys(
        [f"train/0.tar/{name}" for name in ("b.jxl", "caf\\xe9.jpg", "d\\n.jpg", "g.jpg")], "train"
    )


def test_a_stream_names_them_once_when_it_counts(
    write_tar: WriteTar, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (4, 4)).save(picture, "PNG")
    members = [("a.png", picture.getvalue()), ("a.txt", b"a dog"), ("b.jxl", b"x")]
    shard = TarShard(write_tar("0.tar", members), tmp_path, None)
    with caplog.at_level(logging.WARNING):
        assert count_shard(shard).photos == 1
        assert len(list(shard.records())) == 1
    assert [message.split(": ")[0] for message in caplog.messages] == ["skipped 0.tar/b.jxl"]


def lines_of(tmp_path: Path, bad: int, good: int, bad_line: str) -> Path:
    """A JSONL whose bad lines come first."""
    Image.new("RGB", (4, 4)).save(tmp_path / "0.png")
    used = [json.dumps({"id": str(n), "image": "0.png", "captions": ["a"]}) for n in range(good)]
    file = tmp_path / "data.jsonl"
    file.write_text("\n".join([bad_line] * bad + used), encoding="utf-8")
    return file


BAD = ["no JSON", '{"image": "gone.png", "captions": ["a"]}', '{"image": "0.png", "captions": []}']


@pytest.mark.parametrize("line", BAD)
def test_half_of_the_photos_may_be_unusable_but_not_more(tmp_path: Path, line: str) -> None:
    assert len(read_records(lines_of(tmp_path, 4, 4, line))) == 4
    expected = (
        r"data\.jsonl: 5 of 9 photos cannot be used, more than half; the first: .*data\.jsonl:1: "
    )
    with pytest.raises(DataError, match=expected):
        read_records(lines_of(tmp_path, 5, 4, line))


@pytest.mark.parametrize("line", BAD)
def test_a_thousand_unusable_photos_of_one_kind_are_four_lines(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    read_records(lines_of(tmp_path, 1000, 1000, line))
    assert [message.split(": ")[0] for message in caplog.messages] == [
        "skipped data.jsonl:1",
        "skipped data.jsonl:2",
        "skipped data.jsonl:3",
        "skipped 997 more",
    ]


def test_a_blank_caption_is_named_and_the_others_keep_their_ids(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = {"image": "0.png", "id": "A", "captions": ["one", " ", "three"]}
    file = lines_of(tmp_path, 1, 1, json.dumps(line))
    first, _ = read_records(file)
    assert (first.captions, first.caption_ids) == (("one", "three"), ["A#0", "A#2"])
    assert caplog.messages == ["skipped data.jsonl:1: captions[1]: is blank"]
    texts = list(iter_texts(file))
    assert [text.id for text in texts] == ["A#0", "A#2", "0#0"]
