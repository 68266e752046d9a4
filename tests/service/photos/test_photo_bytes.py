"""The bytes of an item's photo."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_network.photos.decoding import DEFAULT_LIMITS, ImageLimits
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.memory import DecodingMemory
from aladin_service.photos.photo_bytes import (
    PhotoBytes,
    PhotoGoneError,
    ThumbnailCache,
    cut_photo,
    photo_version,
    resized_photo,
    rewritten_photo,
)

ORIENTATION, MAKE = 0x0112, 0x010F
MEMORY = DecodingMemory()


def original(path: Path, item_id: str = "a") -> PhotoBytes:
    """Read a photo of full size, cut or written anew."""
    photo = PhotoFile(path)
    cut = cut_photo(photo, item_id, DEFAULT_LIMITS)
    return cut or rewritten_photo(photo, item_id, DEFAULT_LIMITS, MEMORY)


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


def bare(kind: str, mode: str = "RGB") -> bytes:
    """A picture file without metadata."""
    target = io.BytesIO()
    colours = np.random.default_rng(0).integers(0, 256, (30, 60, 3), dtype=np.uint8)
    Image.fromarray(colours).convert(mode).save(target, kind)
    return target.getvalue()


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk of a PNG."""
    checked = kind + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_file_with_nothing_but_the_picture_is_handed_out_as_it_is(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "photo"
    path.write_bytes(bare(kind))
    assert original(path) == (bare(kind), f"image/{kind.lower()}")


@pytest.mark.parametrize(("most_px", "size"), [(None, (30, 60)), (20, (10, 20)), (500, (30, 60))])
def test_photos_are_upright_never_larger_and_without_metadata(
    turned: Path, most_px: int | None, size: tuple[int, int]
) -> None:
    if most_px is None:
        data, media_type = original(turned)
    else:
        data, media_type = resized_photo(PhotoFile(turned), "a", most_px, DEFAULT_LIMITS, MEMORY)
    assert media_type == "image/jpeg"
    assert b"ecret" not in data
    with Image.open(io.BytesIO(data)) as picture:
        assert (picture.format, picture.size) == ("JPEG", size)
        assert not picture.getexif()
        red = np.asarray(picture).astype(int)[..., 0]
    half = size[1] // 2
    assert red[: half - 2].min() > 200  # what was left is on top
    assert red[half + 2 :].max() < 50


def secrets() -> dict[str, bytes]:
    """Picture files that tell more than the picture."""
    jpeg, png, webp = bare("JPEG"), bare("PNG"), bare("WEBP")
    comment = b"\xff\xfe" + struct.pack(">H", 8) + b"secret"
    size = struct.pack("<I", len(webp) - 8 + 14)
    return {
        "jpeg comment": jpeg[:2] + comment + jpeg[2:],
        "jpeg comment between scans": jpeg[:-2] + comment + jpeg[-2:],
        "jpeg xmp": jpeg[:2] + b"\xff\xe1" + struct.pack(">H", 8) + b"secret" + jpeg[2:],
        "after the jpeg": jpeg + b"secret",
        "png text": png[:33] + png_chunk(b"tEXt", b"Comment\0secret") + png[33:],
        "png text at the end": png[:-12] + png_chunk(b"tEXt", b"a\0secret") + png[-12:],
        "png, private": png[:33] + png_chunk(b"prVt", b"secret") + png[33:],
        "after the png": png + b"secret",
        "webp exif": webp[:4] + size + webp[8:] + b"EXIF" + struct.pack("<I", 6) + b"secret",
        "after the webp": webp + b"secret",
        "gif comment": bare("GIF", "P").replace(b"\x2c", b"\x21\xfe\x06secret\0\x2c", 1),
        "bmp": bare("BMP") + b"secret",
        "tiff": bare("TIFF") + b"secret",
        "ppm": bare("PPM").replace(b"\n", b"\n#secret\n", 1),
    }


@pytest.mark.parametrize("name", list(secrets()))
def test_metadata_are_not_served(tmp_path: Path, name: str) -> None:
    data = secrets()[name]
    assert b"secret" in data
    path = tmp_path / "photo"
    path.write_bytes(data)
    photo, media_type = original(path)
    assert b"secret" not in photo
    with Image.open(io.BytesIO(data)) as old, Image.open(io.BytesIO(photo)) as new:
        assert new.get_format_mimetype() == media_type
        before, after = (np.asarray(picture.convert("RGB")).astype(int) for picture in (old, new))
    assert np.abs(before - after).mean() < 25  # noise, coded twice at most


def test_a_version_is_that_of_the_file_and_the_size(tmp_path: Path) -> None:
    path, other = tmp_path / "photo", tmp_path / "other"
    for file in (path, other):
        file.write_bytes(bare("PNG"))
    photo = PhotoFile(path)
    version = photo_version(photo, "a", 20)
    assert photo_version(photo, "a", 20) == version
    others = [photo_version(photo, "a", None), photo_version(PhotoFile(other), "a", 20)]
    others.append(photo_version(PhotoFile(path, 0, 10), "a", 20))
    other.replace(path)  # the same bytes, and maybe the same time: still another file
    others.append(photo_version(photo, "a", 20))
    assert len({version, *others}) == 5
    path.unlink()
    with pytest.raises(PhotoGoneError):
        photo_version(photo, "a", 20)


@pytest.mark.parametrize("content", [None, b"", b"root:x:0:0:/root", b"<svg/>", "a pipe"])
def test_a_file_that_is_no_photo_any_more_is_not_served(
    tmp_path: Path, content: bytes | str | None
) -> None:
    path = tmp_path / "photo.jpg"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        os.mkfifo(path)  # a plain opening would wait for a writer
    for read in (
        lambda: original(path, "a/b#1"),
        lambda: resized_photo(PhotoFile(path), "a/b#1", 20, DEFAULT_LIMITS, MEMORY),
    ):
        with pytest.raises(PhotoGoneError, match=r"^the photo of item 'a/b#1' can no longer be"):
            read()


def test_a_photo_over_the_limits_is_not_decoded(turned: Path) -> None:
    with pytest.raises(PhotoGoneError):
        resized_photo(PhotoFile(turned), "a", 20, ImageLimits(max_pixels=10), MEMORY)


def test_a_photo_in_the_cache_takes_a_bit_more_than_its_bytes() -> None:
    cache = ThumbnailCache(4000)
    for name in "abcd":
        cache.put(name, PhotoBytes(b"." * 1000, "image/jpeg"))
    assert [name for name in "abcd" if cache.get(name) is not None] == ["b", "c", "d"]
    assert 3000 < cache.size_bytes <= 4000
