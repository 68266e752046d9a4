"""Untrusted bytes: odd pictures are fine pictures, everything else is one clear error."""

from __future__ import annotations

import io
import re
import struct
import warnings
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
from tests.aladin.pictures import (
    BLUE,
    RED,
    STORED,
    encode,
    is_near,
    long_png,
    noise_of,
    red_above_blue,
    turned,
)


def test_an_animation_is_read_as_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE, (0, 255, 0))]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)
    assert decode_image(data).getpixel((4, 4)) == RED


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


@pytest.mark.parametrize("orientation", STORED)
def test_every_exif_orientation_comes_out_upright(orientation: int) -> None:
    upright = red_above_blue()
    upright.paste((0, 255, 0), (0, 0, 8, 8))  # green in the upper left corner
    turn = STORED[orientation]
    stored = upright if turn is None else upright.transpose(turn)
    photo = decode_image(encode(stored, "PNG", exif=turned(orientation)))
    assert np.array_equal(np.asarray(photo), np.asarray(upright))


@pytest.mark.parametrize(
    "kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "progressive"]
)
def test_a_picture_that_lacks_more_than_a_tenth_is_refused(kind: str) -> None:
    options = {"progressive": True} if kind == "progressive" else {}
    data = encode(noise_of(), "JPEG" if options else kind, **options)
    for share in (0.3, 0.7 if kind in ("JPEG", "progressive") else 0.85):
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
        ("JPEG", "CMYK", {"quality": 90}),
        ("JPEG", "RGB", {"quality": 90, "restart_marker_rows": 1}),
    ],
)
def test_a_picture_that_lacks_its_last_bytes_is_read_and_says_so(
    kind: str, mode: str, options: dict[str, Any]
) -> None:
    data = encode(noise_of().convert(mode), kind, **options)
    with decoded_image(data, DecodingMemory()) as photo:
        whole = np.asarray(photo.picture)
        assert (photo.damage, photo.details(exif=True)) == (None, {})
    with decoded_image(data[: int(0.95 * len(data))], DecodingMemory()) as photo:
        found = np.asarray(photo.picture)
        assert photo.damage is not None
        assert re.fullmatch(r"cut short: [2-6]\.\d% of the picture is missing", photo.damage)
        assert photo.details(exif=False) == {"damage": photo.damage}
    assert found.shape == (160, 160, 3)
    assert 0.85 < (found == whole).all(axis=(1, 2)).mean() < 1


# A thumbnail in its metadata has scans of its own.
THUMBNAIL = b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0" + encode(noise_of(16), "JPEG")


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["in one scan", "progressive"])
@pytest.mark.parametrize("at_least_px", [None, 16])
def test_a_jpeg_without_its_end_is_read_whole(
    options: dict[str, Any], at_least_px: int | None
) -> None:
    data = encode(noise_of(64), "JPEG", exif=THUMBNAIL, **options)
    whole = np.asarray(decode_image(data, at_least_px=at_least_px))
    for lost in (1, 2, 3):
        photo = np.asarray(decode_image(data[:-lost], at_least_px=at_least_px))
        assert (photo[:-1] == whole[:-1]).all() or lost == 3
        assert np.abs(photo.astype(int) - whole).mean() < 3


def test_a_progressive_jpeg_is_refused_if_whole_scans_are_missing() -> None:
    data = encode(noise_of(), "JPEG", progressive=True, exif=THUMBNAIL)
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


SMALL = encode(red_above_blue(16, 32), "PNG")


@pytest.mark.parametrize(
    ("data", "limits", "reason"),
    [
        (b"", {}, "0 bytes, not an image"),
        (b"\x00", {}, "not an image of a known format"),
        (b"GIF89a", {}, "not an image|damaged"),
        (b"%PDF-1.7 ...", {}, "not an image of a known format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", {}, "not an image of a known format"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, {}, "not an image|damaged"),
        (b"\xff\xd8\xff\xe0" + b"\x00" * 50, {}, "not an image|damaged"),
        (encode(red_above_blue(), "TGA"), {}, "not an image of a known format"),
        (long_png(64_000_000), {}, "for each side"),  # 8 kB
        (long_png(300), {"max_side_px": 299}, "300 x 1 pixels, limit 299 for each side"),
        (SMALL, {"max_pixels": 511}, "16 x 32 pixels, limit 511"),
        (SMALL, {"max_bytes": len(SMALL) - 1}, f"bytes, limit {len(SMALL) - 1}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_picture_or_too_large_is_refused(
    data: bytes, limits: dict[str, int], reason: str
) -> None:
    with pytest.raises(ImageError, match=reason) as caught:
        decode_image(data, limits=ImageLimits(**limits))
    assert isinstance(caught.value, ImageTooLargeError) is ("limit" in reason or "side" in reason)
    within = {name: limit + 1 for name, limit in limits.items()}
    assert not limits or decode_image(data, limits=ImageLimits(**within)).mode == "RGB"


def test_files_are_read_or_the_system_says_why_not(tmp_path: Path) -> None:
    (tmp_path / "big.png").write_bytes(SMALL)
    assert read_image(tmp_path / "big.png").size == (16, 32)
    for path, limits, reason in (
        (tmp_path / "none.png", ImageLimits(), "No such file"),
        (tmp_path, ImageLimits(), "directory"),
        (tmp_path / "big.png", ImageLimits(max_bytes=10), "bytes, limit 10"),
    ):
        with pytest.raises(ImageError, match=reason):
            read_image(path, limits)


def test_a_bad_comment_spoils_no_picture_and_warnings_of_others_pass(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Broken EXIF is common in old photos; Pillow's warning would not name the photo."""
    data = encode(red_above_blue(), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    assert is_near(decode_image(data), (8, 4), RED)
    assert not recwarn.list
    with warnings.catch_warnings(record=True) as found, opened_image(data) as opened:
        warnings.simplefilter("always")
        opened.picture.getexif()
        warnings.warn("mine", UserWarning, stacklevel=1)
    assert "mine" in [str(each.message) for each in found]
    with pytest.warns(UserWarning, match="Corrupt EXIF data"):  # of another's picture
        Image.open(io.BytesIO(data)).getexif()
