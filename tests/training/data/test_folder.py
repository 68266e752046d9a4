"""A folder of photos."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from aladin.errors import DataError
from training.data import read_records


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos in two levels beside what is none."""
    for name in ("b.JPG", "a.png", "sub/c.webp", ".hidden/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "notes.md").write_text("no photo")
    (tmp_path / "e.png").mkdir()
    return tmp_path


def test_all_photos_sorted_by_path(photos: Path) -> None:
    records = read_records(photos, require_captions=False)
    assert [record.id for record in records] == ["a.png", "b.JPG", "sub/c.webp"]
    assert records[2].photo.path == photos / "sub" / "c.webp"
    assert all(record.captions == () and record.split is None for record in records)


def test_captions_are_the_lines_of_a_text_file(photos: Path) -> None:
    (photos / "a.txt").write_bytes("\ufeffa dog\r\n\r\n  ein Hündchen \r\n".encode())
    records = read_records(photos, require_captions=False)
    assert records[0].captions == ("a dog", "ein Hündchen")
    with pytest.raises(DataError, match=r"b\.JPG: photo 'b\.JPG' has no caption"):
        read_records(photos)


def test_a_caption_file_that_is_not_text(photos: Path) -> None:
    (photos / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"a\.txt: cannot be read as UTF-8 text"):
        read_records(photos, require_captions=False)


def test_splits_are_subfolders(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split / "dogs").mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / split / "dogs" / "1.png")
        (tmp_path / split / "dogs" / "1.txt").write_text("a dog\n")
    (record,) = read_records(tmp_path, "val")
    assert record.id == "val/dogs/1.png"
    with pytest.raises(DataError, match="no split 'test'"):
        read_records(tmp_path, "test")


def test_a_folder_without_photos(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no photo"):
        read_records(tmp_path)
