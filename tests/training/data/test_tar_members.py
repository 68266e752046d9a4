"""The walk over a tar's headers, against `tarfile` where that is right."""

from __future__ import annotations

import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.errors import DataError
from aladin_training.data.webdataset import TarMember, walk_tar

LONG = "/".join(["ein langer Ordner mit Umlauten äöü"] * 6) + "/photo.jpg"
MEMBERS = [
    ("a.jpg", b"x" * 700),
    ("folder/b.txt", b""),
    ("folder/c.png", b"y" * 512),
    (LONG, b"z" * 3),
    ("ünï 犬.json", b"{}"),
]


def walk(path: Path) -> list[TarMember]:
    with path.open("rb") as file:
        return list(walk_tar(path, file))


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_offsets_are_those_of_the_bytes(write_tar: Callable[..., Path], format: int) -> None:
    path = write_tar("a.tar", MEMBERS, format=format)
    data = path.read_bytes()
    members = walk(path)
    assert [member.name for member in members] == [name for name, _ in MEMBERS]
    for member, (_, content) in zip(members, MEMBERS, strict=True):
        assert data[member.offset : member.offset + member.length] == content
    with tarfile.open(path) as tar:
        assert members == [
            TarMember(info.name, info.offset_data, info.size) for info in tar.getmembers()
        ]


def test_names_are_read_in_the_oldest_format_and_without_unicode(
    write_tar: Callable[..., Path],
) -> None:
    # ustar splits the long one between two fields.
    names = ["a" * 120 + "/" + "b" * 60 + ".jpg", "caf\udce9.jpg"]
    members = walk(write_tar("a.tar", [(name, b"1234") for name in names]))
    assert [(member.name, member.length) for member in members] == [(name, 4) for name in names]


def test_a_tar_cut_short_anywhere_says_up_to_where_it_is_whole(
    write_tar: Callable[..., Path],
) -> None:
    path = write_tar("a.tar", [("a.jpg", b"x" * 700), ("b.jpg", b"y" * 100)])
    data = path.read_bytes()
    # a.jpg: header to 512, padded content to 1536; b.jpg: header to 2048, content to 2560.
    expected = {
        600: r" inside of 'a\.jpg'; not one member of its 600 bytes is whole",
        1536: r", it has no end mark; whole up to 'a\.jpg', that is byte 1536 of 1536",
        1900: r", it has no end mark; whole up to 'a\.jpg', that is byte 1536 of 1900",
        2100: r" inside of 'b\.jpg'; whole up to 'a\.jpg', that is byte 1536 of 2100",
        2560: r", it has no end mark; whole up to 'b\.jpg', that is byte 2560 of 2560",
    }
    for length, reason in expected.items():
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match=rf"a\.tar: cut short{reason}"):
            walk(path)
    path.write_bytes(data[: 2560 + 512])
    assert len(walk(path)) == 2
    for length in range(0, 2560 + 512, 37):
        path.write_bytes(data[:length])
        with pytest.raises(DataError):
            walk(path)

    path.write_bytes(data[:1900])  # members before the cut are read before the error
    with path.open("rb") as file:
        members = walk_tar(path, file)
        assert next(members).name == "a.jpg"
        with pytest.raises(DataError):
            next(members)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a tar: 0 bytes"),
        (b"\x1f\x8b" + bytes(1000), "not a tar: it is compressed"),
        (b"{}" * 512, "not a tar"),
        (None, r"damaged; whole up to 'a\.jpg', that is byte 1024"),
    ],
)
def test_a_file_that_is_no_tar_or_a_damaged_one_is_refused(
    write_tar: Callable[..., Path], content: bytes | None, reason: str
) -> None:
    path = write_tar("a.tar", [("a.jpg", b"x"), ("b.jpg", b"y")])
    damaged = bytearray(path.read_bytes())
    damaged[1024] ^= 1  # the name of the second member, which its checksum covers
    path.write_bytes(damaged if content is None else content)
    with pytest.raises(DataError, match=reason):
        walk(path)


def write_pax(path: Path, content: bytes) -> Path:
    note = tarfile.TarInfo("PaxHeader")
    note.type, note.size = tarfile.XHDTYPE, len(content)
    photo = tarfile.TarInfo("a.jpg")
    photo.size = 1
    blocks = [note.tobuf(tarfile.USTAR_FORMAT), content.ljust(512, b"\0")]
    blocks += [photo.tobuf(tarfile.USTAR_FORMAT), b"x".ljust(512, b"\0"), bytes(1024)]
    path.write_bytes(b"".join(blocks))
    return path


@pytest.mark.parametrize(
    "record",
    [
        b"0 k=v\n",
        b"-6 k=v\n",
        b"x k=v\n",
        b"2 k=v\n",
        b"5 k=v\n",  # ends before the end of its line
        b"4000 k=v\n",  # ends beyond the header
        b"9" * 500,
        b"5 =v\n",
        b"9 size=\n",
        b"11 size=-1\n",
        b"40 size=" + b"1" * 31 + b"\n",
    ],
)
def test_a_damaged_pax_record_is_refused_at_once(tmp_path: Path, record: bytes) -> None:
    path = write_pax(tmp_path / "a.tar", record)
    # An alarm, so that a walk without end fails the test.
    before = signal.signal(signal.SIGALRM, _fail)
    signal.alarm(30)
    try:
        with pytest.raises(DataError, match=r"damaged: a pax header .*, expected LENGTH KEY=VALUE"):
            walk(path)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _fail(*_: object) -> None:
    pytest.fail("still walking after 30 s")


def test_a_pax_record_names_the_next_member(tmp_path: Path) -> None:
    path = write_pax(tmp_path / "a.tar", b"14 path=b.jpg\n10 size=1\n\0\0")
    assert [(each.name, each.length) for each in walk(path)] == [("b.jpg", 1)]
