from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import UploadedPhoto, photo_of, sweep_photos


def image(path: str | None) -> StoredItem:
    return StoredItem(0, "a", None, path, None, None, None, None, {})


def test_the_bytes_name_the_file(tmp_path: Path) -> None:
    photo = UploadedPhoto(b"some bytes")
    digest = hashlib.sha256(b"some bytes").hexdigest()
    assert photo.path == f"photos/{digest[:2]}/{digest}"
    photo.write(tmp_path)
    written = (tmp_path / photo.path).stat()
    UploadedPhoto(b"some bytes").write(tmp_path)
    assert (tmp_path / photo.path).stat().st_mtime_ns == written.st_mtime_ns
    assert [path.read_bytes() for path in tmp_path.glob("photos/*/*")] == [b"some bytes"]


def test_photos_are_found_where_the_index_is_and_others_where_they_were(tmp_path: Path) -> None:
    photo = UploadedPhoto(b"some bytes")
    photo.write(tmp_path)
    found = photo_of(tmp_path, image(photo.path))
    assert found is not None
    assert found.read() == b"some bytes"
    outside = photo_of(tmp_path, image("/photos/a.jpg")._replace(offset=7, length=9))
    assert outside is not None
    assert (outside.path, outside.offset, outside.length) == (Path("/photos/a.jpg"), 7, 9)
    assert photo_of(tmp_path, image(None)) is None


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "photos/../../secret",
        "photos/aa/../../../secret",
        "generations/1/generation.json",
        "photos",
        ".",
        "photos/aa/" + "a" * 64 + "\n",
    ],
)
def test_a_name_of_what_is_not_kept_is_no_photo(tmp_path: Path, path: str) -> None:
    root = tmp_path / "index"
    (root / "photos/aa").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"outside")
    assert photo_of(root, image(path)) is None


def test_a_link_out_of_the_index_is_no_photo_and_the_index_itself_may_be_one(
    tmp_path: Path,
) -> None:
    root, link = tmp_path / "index", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root)
    kept, linked, beside = (UploadedPhoto(data) for data in (b"kept", b"linked", b"beside"))
    kept.write(root)
    (tmp_path / "secret").write_bytes(b"outside")
    for photo, target in ((linked, tmp_path / "secret"), (beside, Path(linked.path).name)):
        (root / photo.path).parent.mkdir(parents=True, exist_ok=True)
        (root / photo.path).symlink_to(target)
        assert photo_of(root, image(photo.path)) is None
    found = photo_of(link, image(kept.path))
    assert found is not None
    assert found.read() == b"kept"


def test_only_what_is_ours_and_unused_is_swept(tmp_path: Path) -> None:
    photos = [UploadedPhoto(bytes([number])) for number in range(3)]
    for photo in photos:
        photo.write(tmp_path)
    stranger = (tmp_path / photos[0].path).with_name("notes.txt")
    stranger.touch()
    cut = (tmp_path / photos[1].path).with_name(".abc.12.partial")
    cut.touch()
    assert sweep_photos(tmp_path, {photos[0].path, photos[2].path}) == 2
    assert [(tmp_path / photo.path).exists() for photo in photos] == [True, False, True]
    assert stranger.exists()
    assert not cut.exists()
    assert sweep_photos(tmp_path / "nowhere", set()) == 0
