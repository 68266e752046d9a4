"""Photos that are a file, and photos that are a part of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_network.errors import ImageError, ImageTooLargeError
from aladin_network.photos.files import PhotoFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ten bytes, 0 to 9."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(10)))
    return path


def test_reads_the_file_or_its_part(file: Path) -> None:
    assert PhotoFile(file).read() == bytes(range(10))
    assert PhotoFile(file, 3, 4).read() == bytes([3, 4, 5, 6])
    assert PhotoFile(file, 7).read() == bytes([7, 8, 9])
    assert PhotoFile(file, 3, 0).read() == b""


def test_the_limit_counts_the_photo_and_not_its_file(file: Path) -> None:
    assert PhotoFile(file, 3, 4).read(4) == bytes([3, 4, 5, 6])
    assert len(PhotoFile(file).read(10)) == 10
    with pytest.raises(ImageTooLargeError, match=r"file@3: 4 bytes, limit 3"):
        PhotoFile(file, 3, 4).read(3)
    with pytest.raises(ImageTooLargeError, match=r"file: 10 bytes, limit 9"):
        PhotoFile(file).read(9)


def test_missing_and_truncated_files_are_errors(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"file@8: expected 4 bytes, got 2"):
        PhotoFile(file, 8, 4).read()
    with pytest.raises(ImageError, match="No such file"):
        PhotoFile(tmp_path / "none").read()
    with pytest.raises(ImageError, match="null byte"):
        PhotoFile(tmp_path / "a\0b").read()
