"""The bytes of an item's photo."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin.images import DEFAULT_LIMITS, ImageLimits
from aladin.photo_file import PhotoFile
from service.photos import PhotoGoneError, original_photo, resized_photo

ORIENTATION, MAKE = 0x0112, 0x010F


@pytest.fixture
def turned(tmp_path: Path) -> Path:
    """A 60 x 30 px JPEG that its EXIF block says to turn by 90 degrees, red on its left half."""
    pixels = np.zeros((30, 60, 3), dtype=np.uint8)
    pixels[:, :30, 0] = 255
    exif = Image.Exif()
    exif[ORIENTATION], exif[MAKE] = 6, "Secret Camera"
    path = tmp_path / "turned.jpg"
    Image.fromarray(pixels).save(path, exif=exif, comment=b"secret comment", quality=95)
    return path


def test_the_original_is_the_file_itself(turned: Path) -> None:
    assert original_photo(PhotoFile(turned), "a") == (turned.read_bytes(), "image/jpeg")


def test_a_resized_photo_is_upright_small_and_without_metadata(turned: Path) -> None:
    data, media_type = resized_photo(PhotoFile(turned), "a", 20, DEFAULT_LIMITS)
    assert media_type == "image/jpeg"
    assert b"ecret" not in data
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.format == "JPEG"
        assert picture.size == (10, 20)  # turned: the long side is upright
        assert not picture.getexif()
        pixels = np.asarray(picture).astype(int)
    assert pixels[:8, :, 0].min() > 200  # what was left is on top
    assert pixels[12:, :, 0].max() < 50


def test_a_photo_is_never_made_larger(turned: Path) -> None:
    with Image.open(
        io.BytesIO(resized_photo(PhotoFile(turned), "a", 500, DEFAULT_LIMITS).data)
    ) as picture:
        assert picture.size == (30, 60)


@pytest.mark.parametrize("content", [None, b"", b"root:x:0:0:/root", b"<svg/>"])
def test_what_is_no_photo_any_more_is_not_handed_out(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "photo.jpg"
    if content is not None:
        path.write_bytes(content)
    for read in (
        lambda: original_photo(PhotoFile(path), "a/b#1"),
        lambda: resized_photo(PhotoFile(path), "a/b#1", 20, DEFAULT_LIMITS),
    ):
        with pytest.raises(PhotoGoneError) as failure:
            read()
        assert str(failure.value) == "the photo of item 'a/b#1' can no longer be read"


def test_a_photo_over_the_limits_is_not_decoded(turned: Path) -> None:
    with pytest.raises(PhotoGoneError):
        resized_photo(PhotoFile(turned), "a", 20, ImageLimits(max_pixels=100))
