"""Untrusted bytes: odd pictures are fine pictures, everything else is one clear error."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_network.errors import ImageError, ImageTooLargeError
from aladin_network.photos.decoding import (
    ImageLimits,
    decode_image,
    decoded_image,
    opened_image,
    read_image,
)
from aladin_network.photos.memory import DecodingMemory

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
def test_each_known_format_is_decoded(kind: str) -> None:
    options = {"quality": 95} if kind in ("JPEG", "WEBP") else {}
    photo = decode_image(encode(red_above_blue(), kind, **options))
    assert (photo.mode, photo.size) == ("RGB", (16, 32))
    assert is_near(colour_at(photo, 8, 4), RED)
    assert is_near(colour_at(photo, 8, 28), BLUE)


def test_the_format_is_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode(red_above_blue(), "PNG"))
    assert colour_at(read_image(path), 8, 4) == RED


def test_an_animation_is_read_as_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE, (0, 255, 0))]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)
    assert colour_at(decode_image(data), 4, 4) == RED


def two_colours() -> Image.Image:
    """A palette picture, blue at (1, 1) and red elsewhere."""
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putpixel((1, 1), 1)
    return palette


def fading() -> Image.Image:
    """Two red pixels: one is transparent, one half so."""
    picture = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    picture.putpixel((1, 0), (255, 0, 0, 128))
    return picture


WHITE, DARK = (255,) * 3, Image.fromarray(np.full((4, 4), 2000, dtype=np.uint16))


@pytest.mark.parametrize(
    ("data", "colours"),
    [
        (encode(red_above_blue("CMYK"), "JPEG", quality=95), {(8, 4): RED}),
        (encode(red_above_blue("P"), "PNG"), {(8, 28): BLUE}),
        (encode(two_colours(), "PNG", transparency=0), {(0, 0): WHITE, (1, 1): BLUE}),
        (encode(Image.new("L", (4, 4), 77), "PNG"), {(0, 0): (77,) * 3}),
        (encode(Image.new("1", (4, 4), 1), "PNG"), {(0, 0): WHITE}),
        (encode(Image.new("LA", (4, 4), (0, 128)), "PNG"), {(0, 0): (127,) * 3}),
        (encode(DARK, "PNG"), {(0, 0): (8,) * 3}),  # 3 % of full brightness
        (encode(fading(), "PNG"), {(0, 0): WHITE, (1, 0): (255, 127, 127)}),
    ],
)
def test_each_mode_becomes_rgb_on_white(
    data: bytes, colours: dict[tuple[int, int], tuple[int, ...]]
) -> None:
    photo = decode_image(data)
    assert photo.mode == "RGB"
    for place, colour in colours.items():
        assert is_near(colour_at(photo, *place), colour, 12 if data[:2] == b"\xff\xd8" else 1)


def test_sixteen_bits_keep_their_shades() -> None:
    shades = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    photo = decode_image(encode(Image.fromarray(shades), "PNG"))
    values = np.asarray(photo)
    assert values.shape == (16, 16, 3)
    np.testing.assert_allclose(values[..., 0].ravel(), np.arange(256), atol=1)


def grey_tiff(values: np.ndarray, big_endian: bool = False, **tags: Any) -> bytes:
    """A grey TIFF, without compression, of the type of the values; Pillow writes few of them."""
    order = ">" if big_endian else "<"
    kind = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    pixels = values.astype(values.dtype.newbyteorder(order)).tobytes()
    height, width = values.shape
    entries = {
        **{256: (4, width), 257: (4, height), 258: (3, 8 * values.dtype.itemsize), 259: (3, 1)},
        **{262: (3, 1), 273: (4, 8), 277: (3, 1), 278: (4, height), 279: (4, len(pixels))},
        339: (3, kind),
        **{int(tag.lstrip("_")): (11, value) for tag, value in tags.items() if tag != "_262"},
        **({262: (3, tags["_262"])} if "_262" in tags else {}),
    }
    body = b"".join(
        struct.pack(f"{order}HHI", tag, form, 1)
        + struct.pack(f"{order}{ {3: 'Hxx', 4: 'I', 11: 'f'}[form] }", value)
        for tag, (form, value) in sorted(entries.items())
    )
    start = (b"MM\0*" if big_endian else b"II*\0") + struct.pack(f"{order}I", 8 + len(pixels))
    return start + pixels + struct.pack(f"{order}H", len(entries)) + body + b"\0\0\0\0"


UNIT = [[0.0, 0.25], [0.5, 1.0]]


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        (np.array(UNIT, np.float32), {}, [0, 63, 127, 255]),
        (np.array(UNIT, np.float32) * 7000, {}, [0, 63, 127, 255]),
        (np.array(UNIT, np.float32) * 2 - 1, {}, [0, 63, 127, 255]),
        (np.array([[np.nan, 0.5], [-np.inf, 1]], np.float32), {}, [0, 127, 0, 255]),
        (np.array([[0, 0.5], [np.inf, 1]], np.float32), {}, [0, 127, 255, 255]),
        (np.full((2, 2), np.nan, np.float32), {}, [0, 0, 0, 0]),
        (np.zeros((2, 2), np.float32), {}, [0, 0, 0, 0]),
        (np.array(UNIT, np.float32), {"_341": 2.0}, [0, 31, 63, 127]),
        (np.array(UNIT, np.float32), {"_341": 0.1}, [0, 63, 127, 255]),  # not so
        (np.array(UNIT, np.float32), {"_341": np.nan}, [0, 63, 127, 255]),
        (np.array(UNIT, np.float32), {"_341": np.inf}, [0, 63, 127, 255]),
        (np.array(UNIT, np.float32), {"_262": 0}, [255, 191, 127, 0]),
        (np.array([[0, 1024], [2048, 4095]], np.uint16), {}, [0, 63, 127, 255]),
        (np.array([[0, 1024], [2048, 4095]], np.uint16), {"big_endian": True}, [0, 63, 127, 255]),
        (np.array([[0, 1024], [2048, 4095]], np.uint16), {"_262": 0}, [255, 191, 127, 0]),
        (np.array([[0, 300], [600, 1200]], np.uint16), {"_341": 1200.0}, [0, 63, 127, 255]),
        (np.array([[100, 400], [700, 1300]], np.uint16), {"_340": 100.0, "_341": 1300.0}, None),
        (np.array([[0, 100], [200, 255]], np.uint16), {}, [0, 100, 200, 255]),
        (np.array([[-1024, 0], [1024, 3072]], np.int16), {}, [0, 63, 127, 255]),
        (np.array([[-9, -9], [-9, -9]], np.int16), {}, [0, 0, 0, 0]),
        (np.array([[0, 2**29], [2**30, 2**31 - 1]], np.int32), {}, [0, 63, 127, 255]),
    ],
)
def test_grey_tiffs_are_scaled_by_what_they_say_or_by_their_largest_value(
    values: np.ndarray, options: dict[str, Any], expected: list[int] | None
) -> None:
    photo = np.asarray(decode_image(grey_tiff(values, **options)))
    np.testing.assert_allclose(photo[..., 0].ravel(), expected or [0, 63, 127, 255], atol=1)


def test_twelve_bits_of_a_tiff_that_says_so() -> None:
    packed = bytes([0x40, 0x02, 0x00])  # 1024 and 512, of 4095
    data = grey_tiff(np.full((1, 3), 7, np.uint8)).replace(b"\7\7\7", packed)
    data = data.replace(struct.pack("<HHIH", 258, 3, 1, 8), struct.pack("<HHIH", 258, 3, 1, 12))
    data = data.replace(struct.pack("<HHII", 256, 4, 1, 3), struct.pack("<HHII", 256, 4, 1, 2))
    photo = np.asarray(decode_image(data))
    np.testing.assert_allclose(photo[0, :, 0], [64, 32], atol=1)


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


def noise_of(side: int = 160) -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("WEBP", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("TIFF", {}),
        ("PPM", {}),
    ],
)
def test_a_picture_that_lacks_more_than_a_tenth_is_refused(
    kind: str, options: dict[str, bool]
) -> None:
    data = encode(noise_of(), kind, **options)
    for share in (0.3, 0.5, 0.85 if kind != "JPEG" else 0.7):
        with pytest.raises(ImageError, match="photo-7: ") as caught:
            decode_image(data[: int(share * len(data))], source="photo-7")
        assert not isinstance(caught.value, ImageTooLargeError)


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("PNG", "RGB", {}),
        ("PNG", "L", {}),
        ("BMP", "RGB", {}),
        ("TIFF", "RGB", {}),
        ("PPM", "RGB", {}),
        ("JPEG", "RGB", {"quality": 90}),
        ("JPEG", "L", {"quality": 90}),
        ("JPEG", "CMYK", {"quality": 90}),
        ("JPEG", "RGB", {"quality": 90, "restart_marker_rows": 1}),
    ],
)
def test_a_picture_that_lacks_its_last_bytes_is_read_and_says_so(
    kind: str, mode: str, options: dict[str, Any]
) -> None:
    picture = noise_of().convert(mode)
    data = encode(picture, kind, **options)
    whole = np.asarray(decode_image(data))
    with decoded_image(data[: int(0.95 * len(data))], DecodingMemory()) as photo:
        found = np.asarray(photo.picture)
        assert photo.size_px == (160, 160)
        assert photo.damage is not None
        assert re.fullmatch(r"cut short: [2-6]\.\d% of the picture is missing", photo.damage)
        assert photo.details(exif=False) == {"damage": photo.damage}
    same = (found == whole).all(axis=(1, 2))
    assert 0.85 < same.mean() < 1
    with decoded_image(data, DecodingMemory()) as photo:
        assert (photo.damage, photo.details(exif=True)) == (None, {})


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("at_least_px", [None, 16])
def test_a_jpeg_without_its_end_is_read_whole(
    options: dict[str, Any], lost: int, at_least_px: int | None
) -> None:
    """A thumbnail in its metadata has scans of its own."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0" + encode(noise_of(16), "JPEG")
    data = encode(noise_of(64), "JPEG", exif=exif, **options)
    whole = np.asarray(decode_image(data, at_least_px=at_least_px))
    photo = np.asarray(decode_image(data[:-lost], at_least_px=at_least_px))
    assert (photo[:-1] == whole[:-1]).all() or lost == 3
    assert np.abs(photo.astype(int) - whole).mean() < 3


def test_a_progressive_jpeg_is_refused_if_whole_scans_are_missing() -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0" + encode(noise_of(16), "JPEG")
    data = encode(noise_of(), "JPEG", progressive=True, exif=exif)
    last = data.rfind(b"\xff\xda")
    assert decode_image(data[: last + 100]).size == (160, 160)
    with pytest.raises(ImageError, match="scans of all pixels are missing"):
        decode_image(data[: last - 1])


def test_photos_that_are_cut_short_are_read_by_many_threads_at_once() -> None:
    """Pillow's switch for them would concern other threads, which then accept anything."""
    data = encode(noise_of(64), "JPEG")

    def read(length: int) -> bool:
        try:
            return decode_image(data[:length]).size == (64, 64)
        except ImageError:
            return False

    lengths = [len(data), len(data) - 2, len(data) // 2] * 40
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, lengths)) == [True, True, False] * 40


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
def test_data_that_are_no_image_are_refused(data: bytes, reason: str) -> None:
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


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="No such file"):
        read_image(tmp_path / "none.png")
    with pytest.raises(ImageError, match="directory"):
        read_image(tmp_path)
    path = tmp_path / "big.png"
    path.write_bytes(encode(red_above_blue(), "PNG"))
    with pytest.raises(ImageTooLargeError, match="bytes, limit 10"):
        read_image(path, ImageLimits(max_bytes=10))


def test_a_bad_comment_does_not_spoil_a_picture(recwarn: pytest.WarningsRecorder) -> None:
    """Broken EXIF is common in old photos; Pillow's warning would not name the photo."""
    data = encode(red_above_blue(), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff", quality=95)
    assert is_near(colour_at(decode_image(data), 8, 4), RED)
    assert not recwarn.list


def test_warnings_of_others_pass_while_photos_are_decoded() -> None:
    data = encode(red_above_blue(), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    with warnings.catch_warnings(record=True) as found, opened_image(data) as opened:
        warnings.simplefilter("always")
        opened.picture.getexif()
        warnings.warn("mine", UserWarning, stacklevel=1)
    assert "mine" in [str(each.message) for each in found]
    with pytest.warns(UserWarning, match="Corrupt EXIF data"):  # of another's picture
        Image.open(io.BytesIO(data)).getexif()
