"""Untrusted bytes: odd pictures are fine pictures, everything else is one clear error."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_network.errors import ImageError, ImageTooLargeError
from aladin_network.photos.decoding import ImageLimits, decode_image, read_image

RED, BLUE = (255, 0, 0), (0, 0, 255)


def encode(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def red_above_blue(mode: str = "RGB") -> Image.Image:
    """16 x 32 px, so that a turned or mirrored picture is noticed."""
    picture = Image.new("RGB", (16, 32), BLUE)
    picture.paste(RED, (0, 0, 16, 16))
    return picture.convert(mode)


def colour_at(picture: Image.Image, x: int, y: int) -> tuple[int, ...]:
    colour = picture.getpixel((x, y))
    assert isinstance(colour, tuple)
    return colour


def is_near(colour: tuple[int, ...], expected: tuple[int, ...], tolerance: int = 12) -> bool:
    return all(abs(a - b) <= tolerance for a, b in zip(colour, expected, strict=True))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_every_known_format(kind: str) -> None:
    options = {"quality": 95} if kind in ("JPEG", "WEBP") else {}
    photo = decode_image(encode(red_above_blue(), kind, **options))
    assert (photo.mode, photo.size) == ("RGB", (16, 32))
    assert is_near(colour_at(photo, 8, 4), RED)
    assert is_near(colour_at(photo, 8, 28), BLUE)


def test_the_format_is_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode(red_above_blue(), "PNG"))
    assert colour_at(read_image(path), 8, 4) == RED


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE, (0, 255, 0))]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)
    assert colour_at(decode_image(data), 4, 4) == RED


def test_cmyk() -> None:
    photo = decode_image(encode(red_above_blue("CMYK"), "JPEG", quality=95))
    assert photo.mode == "RGB"
    assert is_near(colour_at(photo, 8, 4), RED)


def test_palette_with_and_without_transparency() -> None:
    photo = decode_image(encode(red_above_blue("P"), "PNG"))
    assert is_near(colour_at(photo, 8, 28), BLUE)
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putpixel((1, 1), 1)
    photo = decode_image(encode(palette, "PNG", transparency=0))
    assert colour_at(photo, 0, 0) == (255, 255, 255)
    assert colour_at(photo, 1, 1) == BLUE


def test_grey_black_and_white_and_grey_with_alpha() -> None:
    assert colour_at(decode_image(encode(Image.new("L", (4, 4), 77), "PNG")), 0, 0) == (77,) * 3
    assert colour_at(decode_image(encode(Image.new("1", (4, 4), 1), "PNG")), 0, 0) == (255,) * 3
    half = decode_image(encode(Image.new("LA", (4, 4), (0, 128)), "PNG"))
    assert is_near(colour_at(half, 0, 0), (127,) * 3, 1)


def test_sixteen_bits_keep_their_shades() -> None:
    shades = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    photo = decode_image(encode(Image.fromarray(shades), "PNG"))
    values = np.asarray(photo)
    assert values.shape == (16, 16, 3)
    np.testing.assert_allclose(values[..., 0].ravel(), np.arange(256), atol=1)


def test_a_dark_sixteen_bit_picture_stays_dark() -> None:
    shades = np.full((4, 4), 2000, dtype=np.uint16)  # 3 % of full brightness
    photo = decode_image(encode(Image.fromarray(shades), "PNG"))
    assert is_near(colour_at(photo, 0, 0), (8,) * 3, 1)


def test_transparency_lies_on_white() -> None:
    picture = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    picture.putpixel((1, 0), (255, 0, 0, 128))
    photo = decode_image(encode(picture, "PNG"))
    assert colour_at(photo, 0, 0) == (255, 255, 255)
    assert is_near(colour_at(photo, 1, 0), (255, 127, 127), 1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_comes_out_upright(orientation: int) -> None:
    """Turn the picture as a camera would store it; decoding must turn it back."""
    inverse = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    upright = red_above_blue()
    upright.paste((0, 255, 0), (0, 0, 8, 8))  # green in the upper left corner
    stored = upright if inverse is None else upright.transpose(inverse)
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo = decode_image(encode(stored, "PNG", exif=exif))
    assert photo.size == (16, 32)
    assert np.array_equal(np.asarray(photo), np.asarray(upright))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_cut_short(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise), kind)
    for share in (0.3, 0.7):
        with pytest.raises(ImageError, match="photo-7: ") as caught:
            decode_image(data[: int(share * len(data))], source="photo-7")
        assert not isinstance(caught.value, ImageTooLargeError)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes, not an image"),
        (b"\x00", "not an image of a known format"),
        (b"GIF89a", "not an image|damaged"),
        (b"%PDF-1.7 ...", "not an image of a known format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image of a known format"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "not an image|damaged"),
        (b"\xff\xd8\xff\xe0" + b"\x00" * 50, "not an image|damaged"),
    ],
)
def test_not_an_image(data: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        decode_image(data)


def test_a_format_that_is_not_offered_is_refused() -> None:
    with pytest.raises(ImageError, match="not an image of a known format"):
        decode_image(encode(red_above_blue(), "TGA"))


def png_bomb(width: int, height: int) -> bytes:
    """A PNG of so many pixels, all black, in a few kB: its rows are left out."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\x00" * 3_000_000, 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [50_000, 10_000])
def test_a_small_file_with_too_many_pixels_is_refused_before_decoding(side: int) -> None:
    data = png_bomb(side, side)
    assert len(data) < 10_000
    with pytest.raises(ImageTooLargeError, match="64000000"):
        decode_image(data)


def test_the_limits_are_the_callers() -> None:
    data = encode(red_above_blue(), "PNG")
    with pytest.raises(ImageTooLargeError, match="16 x 32 pixels, limit 511"):
        decode_image(data, limits=ImageLimits(max_pixels=511))
    assert decode_image(data, limits=ImageLimits(max_pixels=512)).size == (16, 32)
    with pytest.raises(ImageTooLargeError, match=f"{len(data)} bytes, limit {len(data) - 1}"):
        decode_image(data, limits=ImageLimits(max_bytes=len(data) - 1))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="No such file"):
        read_image(tmp_path / "none.png")
    with pytest.raises(ImageError, match="directory"):
        read_image(tmp_path)
    path = tmp_path / "big.png"
    path.write_bytes(encode(red_above_blue(), "PNG"))
    with pytest.raises(ImageTooLargeError, match="bytes, limit 10"):
        read_image(path, ImageLimits(max_bytes=10))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # what Pillow says, and goes on
def test_a_bad_comment_does_not_spoil_a_picture() -> None:
    """Broken EXIF is common in old photos; the picture itself is fine."""
    data = encode(red_above_blue(), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff", quality=95)
    assert is_near(colour_at(decode_image(data), 8, 4), RED)
