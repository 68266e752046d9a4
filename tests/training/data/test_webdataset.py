"""webdataset's tars and img2dataset's output, by hand-written members."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from aladin_network.errors import DataError
from aladin_network.photos.decoding import read_image
from aladin_training.data import iter_records, read_records
from aladin_training.data import webdataset as module
from aladin_training.data.records import Source, strict_data

Picture = Callable[[int], bytes]
WriteTar = Callable[..., Path]


def downloaded(key: str, caption: str, **more: object) -> bytes:
    """The .json that img2dataset writes for a photo."""
    fields = {
        "caption": caption,
        "url": f"http://host/{key}.jpg",
        "key": key,
        "status": "success",
        "error_message": None,
        "width": 256,
        "height": 171,
        "exif": '{"GPS": "here"}',
    }
    return json.dumps(fields | more).encode()


def test_a_sample_with_all_its_parts(write_tar: WriteTar, picture: Picture) -> None:
    path = write_tar(
        "00000.tar",
        [
            ("000000000.jpg", picture(0)),
            ("000000000.json", downloaded("000000000", "a dog", similarity=0.31)),
            ("000000000.txt", b"a dog"),
            ("000000001.json", downloaded("000000001", "ein Hündchen")),
            ("000000001.png", picture(1)),
        ],
    )
    first, second = read_records(path)
    assert (first.id, first.uri) == ("000000000", "00000.tar/000000000.jpg")
    assert first.captions == ("a dog",)
    assert first.metadata == {
        "url": "http://host/000000000.jpg",
        "width": 256,
        "height": 171,
        "similarity": 0.31,
    }
    assert (second.id, second.captions) == ("000000001", ("ein Hündchen",))
    for record, number in ((first, 0), (second, 1)):
        assert record.photo.path == path
        assert record.photo.read() == picture(number)
        assert read_image(record.photo).getpixel((0, 0)) == (number, 7, 9)


def test_photos_with_captions_alone(write_tar: WriteTar, picture: Picture) -> None:
    path = write_tar(
        "shard.tar",
        [
            ("./sub/hündin 犬.webp", picture(3)),
            ("./sub/hündin 犬.txt", b"one dog\r\n\n two dogs \n"),
            ("./sub/._hündin.webp", b"what a Mac adds"),
        ],
    )
    (record,) = read_records(path)
    assert record.id == record.uri == "shard.tar/sub/hündin 犬.webp"
    assert record.captions == ("one dog", "two dogs")
    assert record.photo.read() == picture(3)


def test_names_that_would_unpack_elsewhere_are_only_names(
    write_tar: WriteTar, picture: Picture
) -> None:
    path = write_tar("a.tar", [("/root/a.jpg", picture(1)), ("../b.jpg", picture(2))])
    first, second = iter_records(path, require_captions=False)
    assert (first.uri, first.photo.read()) == ("a.tar/root/a.jpg", picture(1))
    assert (second.uri, second.photo.read()) == ("a.tar/../b.jpg", picture(2))


def test_downloads_that_failed_are_skipped(write_tar: WriteTar, picture: Picture) -> None:
    path = write_tar(
        "00000.tar",
        [
            ("0.json", downloaded("0", "gone", status="failed_to_download")),
            ("1.jpg", picture(1)),
            ("1.json", downloaded("1", "here")),
            ("2.jpg", picture(2)),
            ("2.json", downloaded("2", "half", status="failed_to_resize")),
        ],
    )
    assert [record.id for record in read_records(path)] == ["1"]


def test_the_parquet_beside_a_tar_stands_in_for_json(
    write_tar: WriteTar, write_parquet: Callable[..., Path], picture: Picture, tmp_path: Path
) -> None:
    write_tar("00000.tar", [(f"00000000{n}.jpg", picture(n)) for n in range(3)])
    write_parquet(
        "00000.parquet",
        {
            "key": ["000000000", "000000001", "000000002"],
            "caption": ["a dog", "a cat", None],
            "status": ["success", "failed_to_resize", "success"],
            "score": [0.5, None, float("nan")],
        },
    )
    (tmp_path / "00000_stats.json").write_text('{"count": 3}')
    first, third = read_records(tmp_path, require_captions=False)
    assert (first.id, first.captions, first.metadata) == ("000000000", ("a dog",), {"score": 0.5})
    assert (third.id, third.captions, third.metadata) == ("000000002", (), {})


def test_a_folder_of_tars_in_subfolders_with_their_splits(
    write_tar: WriteTar, picture: Picture, tmp_path: Path
) -> None:
    for split in ("train", "val"):
        write_tar(f"{split}/00000.tar", [("0.jpg", picture(0)), ("0.txt", split.encode())])
    write_tar(
        "more/0.tar", [("0.jpg", picture(1)), ("0.json", b'{"caption": "x", "split": "val"}')]
    )
    assert [record.uri for record in read_records(tmp_path)] == [
        "more/0.tar/0.jpg",
        "train/00000.tar/0.jpg",
        "val/00000.tar/0.jpg",
    ]
    assert [record.captions for record in read_records(tmp_path, "val")] == [("x",), ("val",)]
    with pytest.raises(DataError, match=r"no split 'test', known are \['train', 'val'\]"):
        list(iter_records(tmp_path, "test"))


def test_patterns_of_tars(write_tar: WriteTar, picture: Picture, tmp_path: Path) -> None:
    for number in range(3):
        write_tar(f"a/{number:05d}.tar", [(f"{number}.jpg", picture(number))])
    braces = tmp_path / "a" / "{00000..00002}.tar"
    stars = tmp_path / "*" / "0000[01].tar"
    assert [r.uri for r in iter_records(braces, require_captions=False)] == [
        f"{number:05d}.tar/{number}.jpg" for number in range(3)
    ]
    assert [r.uri for r in iter_records(stars, require_captions=False)] == [
        "a/00000.tar/0.jpg",
        "a/00001.tar/1.jpg",
    ]


def test_no_tar_is_opened_before_the_one_before_is_used_up(
    write_tar: WriteTar, picture: Picture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write_tar(f"{number}.tar", [(f"{number}-{n}.jpg", picture(n)) for n in range(4)])
    opened: list[str] = []

    def read_tar(source: Source) -> Iterator[object]:
        opened.append(source.path.name)
        return original(source)

    original = module.read_tar
    monkeypatch.setattr("aladin_training.data.folder.read_tar", read_tar)
    records = iter_records(tmp_path, require_captions=False)
    assert opened == []
    assert [record.id for record in islice(records, 4)] == [f"0.tar/0-{n}.jpg" for n in range(4)]
    assert opened == ["0.tar"]
    assert next(records).id == "1.tar/1-0.jpg"
    assert opened == ["0.tar", "1.tar"]


def test_only_headers_captions_and_details_are_read(
    write_tar: WriteTar, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = picture(0) + bytes(2**20)
    path = write_tar("a.tar", [(f"{n}.jpg", large) for n in range(3)] + [("2.txt", b"a dog")])
    read = 0
    pread = module.os.pread

    def counted(file: int, length: int, offset: int) -> bytes:
        nonlocal read
        data = pread(file, length, offset)
        read += len(data)
        return data

    monkeypatch.setattr("os.pread", counted)
    assert len(list(iter_records(path, require_captions=False))) == 3
    assert read == 5 * 512 + len(b"a dog")  # four headers and the end


@pytest.mark.parametrize(
    "order", [["a.jpg", "b.jpg", "a.txt", "b.txt"], ["b.txt", "a.jpg", "a.txt", "b.jpg"]]
)
def test_samples_that_are_torn_apart(write_tar: WriteTar, order: list[str]) -> None:
    path = write_tar("a.tar", [(name, b"x") for name in order])
    with pytest.raises(DataError, match=r"a\.tar: [ab]: .* do not follow one another.*--sort=name"):
        list(iter_records(path, require_captions=False))


def test_other_files_in_a_tar_are_no_photos(write_tar: WriteTar, picture: Picture) -> None:
    path = write_tar("a.tar", [("README.txt", b"read me"), ("a.jpg", picture(0)), ("b.cls", b"1")])
    assert [r.uri for r in iter_records(path, require_captions=False)] == ["a.tar/a.jpg"]


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("a.txt", b"caf\xe9", r"a\.tar: a\.txt: cannot be read as UTF-8 text"),
        ("a.json", b"{", r"a\.tar: a\.json: not JSON"),
        ("a.json", b"[1]", r"a\.tar: a\.json: expected a JSON object"),
        ("a.json", b'{"caption": 7}', r"a\.tar: a\.jpg: caption: expected a text"),
        ("a.json", b'{"id": 1.5}', r"a\.tar: a\.jpg: id: expected a text, got float"),
    ],
)
def test_a_part_that_cannot_be_used(
    write_tar: WriteTar, picture: Picture, member: str, content: bytes, reason: str
) -> None:
    path = write_tar("a.tar", [("a.jpg", picture(0)), (member, content)])
    with strict_data(True), pytest.raises(DataError, match=reason):
        list(iter_records(path, require_captions=False))


def test_a_photo_without_a_caption_is_named(write_tar: WriteTar, picture: Picture) -> None:
    path = write_tar("a.tar", [("a.jpg", picture(0))])
    with pytest.raises(DataError, match=r"a\.tar: a\.jpg: photo 'a\.tar/a\.jpg' has no caption"):
        read_records(path)


def test_one_id_in_two_tars(write_tar: WriteTar, picture: Picture, tmp_path: Path) -> None:
    for name in ("0.tar", "1.tar"):
        write_tar(name, [("a.jpg", picture(0)), ("a.json", downloaded("7", "x"))])
    with (
        strict_data(True),
        pytest.raises(
            DataError, match=r"1\.tar: a\.jpg: id '7' repeats, first used at .*0\.tar, a\.jpg"
        ),
    ):
        read_records(tmp_path)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.TGZ", "a.tar.zst"])
def test_compressed_tars(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b")
    for source in (tmp_path / name, tmp_path):
        with pytest.raises(DataError, match="compressed tar cannot be read in place"):
            list(iter_records(source))


def test_photos_and_tars_in_one_folder(
    write_tar: WriteTar, picture: Picture, tmp_path: Path
) -> None:
    write_tar("b.tar", [("a.jpg", picture(0))])
    (tmp_path / "a.jpg").write_bytes(picture(0))
    with pytest.raises(DataError, match=r"expected photos or tars, got both: a\.jpg and b\.tar"):
        list(iter_records(tmp_path, require_captions=False))
