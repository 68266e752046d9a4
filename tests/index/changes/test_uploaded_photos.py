from __future__ import annotations

import hashlib
from pathlib import Path

from index.changes.uploaded_photos import UploadedPhoto, photo_of, sweep_photos
from index.items.tables import StoredItem


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
