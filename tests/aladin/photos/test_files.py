"""Files of photos: their names, their parts, the folder they lie in, and rows beside them."""

from __future__ import annotations

import os
from datetime import date, time
from pathlib import Path

import pytest

from aladin_network.errors import ImageError, ImageTooLargeError
from aladin_network.photos.files import (
    ListedPhotos,
    PhotoFile,
    PhotosRoot,
    first_of,
    metadata_of,
    name_fault,
    printable,
)


@pytest.mark.parametrize(
    ("name", "fault", "printed"),
    [
        (os.fsdecode(b"caf\xe9.jpg"), "not UTF-8", "caf\\xe9.jpg"),
        ("new\nline.jpg", "control character", "new\\nline.jpg"),
        ("c1\x85.jpg", "control character", "c1\\x85.jpg"),
        ("half \ud83d of a pair.jpg", "not UTF-8", "half \\ud83d of a pair.jpg"),
        ("a.jpg", None, "a.jpg"),
        ("sub/a b#c?.jpg", None, "sub/a b#c?.jpg"),
        ("ünïcode \N{DOG}.jpg", None, "ünïcode \N{DOG}.jpg"),
        ("\\n.jpg", None, "\\n.jpg"),
    ],
)
def test_a_name_is_an_id_or_has_a_fault(name: str, fault: str | None, printed: str) -> None:
    found = name_fault(name)
    assert (fault in found) if fault and found else found is fault
    assert printable(name) == printed


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ten bytes, 0 to 9."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(10)))
    return path


@pytest.mark.parametrize(
    ("part", "limit", "found"),
    [
        ((), None, range(10)),
        ((3, 4), None, range(3, 7)),
        ((7,), None, range(7, 10)),
        ((3, 0), None, range(0)),
        ((3, 4), 4, range(3, 7)),  # the limit counts the photo and not its file
        ((), 10, range(10)),
        ((3, 4), 3, r"file@3: 4 bytes, limit 3"),
        ((), 9, r"file: 10 bytes, limit 9"),
        ((8, 4), None, r"file@8: expected 4 bytes, got 2"),
    ],
)
def test_the_file_or_its_part_is_read(
    file: Path, part: tuple[int, ...], limit: int | None, found: range | str
) -> None:
    photo = PhotoFile(file, *part)
    if isinstance(found, range):
        assert (photo.read() if limit is None else photo.read(limit)) == bytes(found)
        return
    with pytest.raises(ImageError, match=found) as caught:
        photo.read() if limit is None else photo.read(limit)
    assert isinstance(caught.value, ImageTooLargeError) is (limit is not None)


@pytest.mark.parametrize(("name", "reason"), [("none", "No such file"), ("a\0b", "null byte")])
def test_a_file_that_is_not_there_is_an_error(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        PhotoFile(tmp_path / name).read()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of photos with links that stay inside and links that lead out of it."""
    root = tmp_path / "photos"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "photos-private").mkdir()
    for photo in (root / "a.jpg", root / "sub" / "b.jpg", tmp_path / "photos-private" / "c.jpg"):
        photo.write_bytes(b"x")
    (root / "inside.jpg").symlink_to("sub/b.jpg")
    (root / "outside.jpg").symlink_to("../photos-private/c.jpg")
    (root / "nowhere.jpg").symlink_to("../gone/c.jpg")
    (root / "folder").symlink_to("../photos-private")
    return root


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("a.jpg", True),
        ("sub/b.jpg", True),
        ("sub/../a.jpg", True),
        ("inside.jpg", True),
        ("not there.jpg", True),
        ("outside.jpg", False),
        ("nowhere.jpg", False),
        ("folder/c.jpg", False),
        ("../photos-private/c.jpg", False),
        ("/etc/passwd", False),
        (".", False),
        ("a\0.jpg", False),
    ],
)
def test_links_are_resolved_before_a_photo_is_accepted(root: Path, name: str, held: bool) -> None:
    photos = PhotosRoot(root)
    assert photos.holds(root / name) is held
    if name not in (".", "a\0.jpg"):
        assert ListedPhotos(photos).holds(root / name) is held


def test_a_root_may_be_a_link_or_everything(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert PhotosRoot(tmp_path / "link").holds(root / "a.jpg")
    assert PhotosRoot(Path("/")).holds(root / "a.jpg")


def test_the_order_of_names_decides_and_not_that_of_the_columns() -> None:
    assert first_of(("a", "b"), ["c", "b", "a"]) == "a"
    assert first_of(("a", "b"), ["c"]) is None


def test_json_values_of_what_is_left() -> None:
    row = {
        "taken": "x",
        "n": 1,
        "nan": float("nan"),
        "none": None,
        "bytes": b"x",
        "day": date(2020, 1, 2),
        "time": time(3, 4),
        "list": [1, b"x", [2.5]],
        "exif": "where it was",
        "status": "success",
    }
    assert metadata_of(row, ["taken", None]) == {
        "n": 1,
        "day": "2020-01-02",
        "time": "03:04:00",
        "list": [1, None, [2.5]],
    }
