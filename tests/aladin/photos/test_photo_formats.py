"""HEIC, AVIF, camera RAW and photos of a hundred million pixels."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from PIL import Image

from aladin_network.errors import ImageError, ImageTooLargeError
from aladin_network.photos.decoding import (
    DEFAULT_LIMITS,
    ImageLimits,
    decode_image,
    decoded_image,
    opened_image,
)
from aladin_network.photos.formats import (
    FORMATS,
    HAS_AVIF,
    HAS_RAW,
    UPLOAD_FORMATS,
    is_heif,
    is_raw,
)
from aladin_network.photos.memory import DecodingMemory, decoding_bytes
from tests.aladin.pictures import BLUE, RED, STORED, encode, is_near, red_above_blue, turned
from tests.aladin.raw_files import make_dng

needs_avif = pytest.mark.skipif(not HAS_AVIF, reason="this Pillow was built without AVIF")
needs_raw = pytest.mark.skipif(not HAS_RAW, reason="needs the extra raw (rawpy)")


@pytest.mark.parametrize("kind", ["HEIF", pytest.param("AVIF", marks=needs_avif)])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_photos_of_telephones_come_out_upright(kind: str, orientation: int) -> None:
    turn = STORED[orientation]
    stored = red_above_blue() if turn is None else red_above_blue().transpose(turn)
    data = encode(stored, kind, exif=turned(orientation).tobytes())
    with decoded_image(data, DecodingMemory()) as photo:
        assert (photo.picture.mode, photo.picture.size, photo.size_px) == ("RGB", *[(64, 96)] * 2)
        assert is_near(photo.picture, (32, 10), RED) and is_near(photo.picture, (32, 86), BLUE)


def test_heic_is_taken_from_anybody_and_decodes_no_more_than_it_announces() -> None:
    assert "HEIF" in UPLOAD_FORMATS and set(UPLOAD_FORMATS) < set(FORMATS)
    assert not {"AVIF", "PPM", "RAW"} & set(UPLOAD_FORMATS)
    data = encode(red_above_blue(256, 256), "HEIF")
    assert is_heif(data)
    size = b"ispe" + bytes(4) + struct.pack(">II", 256, 256)
    assert size in data
    lying = data.replace(size, b"ispe" + bytes(4) + struct.pack(">II", 16, 16))
    with pytest.raises(ImageError):
        decode_image(lying)
    with pytest.raises(ImageTooLargeError, match="256 x 256 pixels, limit 65000"):
        decode_image(data, limits=ImageLimits(max_pixels=65_000))


@needs_raw
@pytest.mark.parametrize("orientation", [1, 6, 8])
def test_of_a_camera_raw_the_preview(orientation: int) -> None:
    preview = encode(red_above_blue(), "JPEG")
    data = make_dng(preview, orientation=orientation)
    assert is_raw(data)
    with decoded_image(data, DecodingMemory()) as photo:
        is_turned = orientation != 1
        assert photo.picture.size == photo.size_px == ((96, 64) if is_turned else (64, 96))
        red_at = {1: (32, 10), 6: (86, 32), 8: (10, 32)}[orientation]
        assert is_near(photo.picture, red_at, RED)
        assert photo.metadata == {
            "taken_at": "2021-05-06T07:08:09",
            "date_source": "exif",
            "camera": "Acme X1",
        }
    with opened_image(data) as opened:
        assert opened.data.endswith(preview[20:])  # LibRaw replaces the header by its own
        assert opened.is_upright == (not is_turned)


@needs_raw
def test_the_orientation_of_the_preview_itself_counts() -> None:
    preview = encode(red_above_blue(), "JPEG", exif=turned(1))
    assert preview[24:28] == b"Exif"
    # Cameras write no JFIF header before it.
    data = make_dng(preview[:2] + preview[20:], orientation=6)
    assert decode_image(data).size == (64, 96)


@needs_raw
def test_a_camera_raw_without_a_preview_and_a_damaged_one() -> None:
    with pytest.raises(ImageError, match="camera RAW without a preview; export it as JPEG"):
        decode_image(make_dng(None))
    with pytest.raises(ImageError, match=r"a\.raf: camera RAW that is damaged, or of a kind"):
        decode_image(b"FUJIFILMCCD-RAW" + bytes(100), "a.raf")


def test_camera_raws_are_recognised() -> None:
    for start in (
        b"FUJIFILMCCD-RAW 0201",
        b"IIRO",
        b"IIU\0",
        b"\0\0\0\x18ftypcrx ",
        b"II*\0....CR\2",
    ):
        assert is_raw(start + bytes(100))
    for kind in ("TIFF", "JPEG", "PNG"):
        assert not is_raw(encode(red_above_blue(), kind))
    # Directories that lead to themselves, beyond the end, or have an absurd number of entries.
    for tail in (b"\0" * 3, struct.pack("<H", 65535), struct.pack("<HHHII", 1, 330, 4, 1, 8)):
        assert not is_raw(b"II*\0" + struct.pack("<I", 8) + tail)


def large_jpeg(width: int, height: int, **options: object) -> bytes:
    picture = Image.new("L", (width, height), 50)
    picture.paste(220, (0, 0, width, height // 2))
    return encode(picture, "JPEG", **options)


def test_a_photo_of_108_megapixels_is_decoded_at_half_its_size() -> None:
    data = large_jpeg(12000, 9000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with decoded_image(data, DecodingMemory()) as photo:
            assert photo.picture.size == (6000, 4500)
            assert photo.size_px == (12000, 9000)
            assert abs(photo.picture.getpixel((3000, 100))[0] - 220) < 5  # type: ignore[index]
            assert abs(photo.picture.getpixel((3000, 4400))[0] - 50) < 5  # type: ignore[index]
        # A picture that cannot be decoded at a reduced size.
        flat = encode(Image.new("1", (12000, 9000)), "PNG")
        with pytest.raises(ImageTooLargeError, match="12000 x 9000 pixels, limit 64000000"):
            decode_image(flat)
        assert decode_image(flat, limits=ImageLimits(max_pixels=10**8 * 2)).size == (12000, 9000)


@pytest.mark.parametrize(
    ("limits", "at_least_px", "size"),
    [
        ({}, None, (800, 600)),
        ({"max_pixels": 480_000}, None, (800, 600)),
        ({"max_pixels": 479_999}, None, (400, 300)),
        ({"max_side_px": 799}, None, (400, 300)),
        ({"max_side_px": 100}, None, (100, 75)),
        ({"max_side_px": 99}, None, None),  # an eighth at most
        ({"max_pixels": 479_999}, 150, (200, 150)),
    ],
)
def test_the_limits_concern_decoded_pixels(
    limits: dict[str, int], at_least_px: int | None, size: tuple[int, int] | None
) -> None:
    data, limit = large_jpeg(800, 600), ImageLimits(**limits)
    if size is None:
        with pytest.raises(ImageTooLargeError, match="100 x 75 pixels, limit 99 for each side"):
            decode_image(data, limits=limit)
        return
    assert decode_image(data, limits=limit, at_least_px=at_least_px).size == size
    turned_by_exif = large_jpeg(800, 600, exif=turned(6))
    with decoded_image(
        turned_by_exif, DecodingMemory(), limits=limit, at_least_px=at_least_px
    ) as photo:
        assert (photo.picture.size, photo.size_px) == (size[::-1], (600, 800))


def test_the_work_on_all_pixels_is_limited_and_their_memory_counted() -> None:
    data = large_jpeg(1600, 1600, progressive=True)
    with pytest.raises(ImageTooLargeError, match="scans of 2560000 pixels each"):
        decode_image(data, limits=ImageLimits(max_pixels=40_000))
    with opened_image(data, limits=ImageLimits(max_pixels=640_000)) as opened:
        assert opened.picture.size == (800, 800)
        assert decoding_bytes(opened.picture, opened.data) > 2 * 1600 * 1600


def test_more_memory_is_allowed_where_more_pixels_are() -> None:
    assert DecodingMemory.for_pixels(DEFAULT_LIMITS.max_pixels).max_bytes == 2 * 2**30
    assert DecodingMemory.for_pixels(200_000_000).max_bytes >= 17 * 200_000_000


def test_without_its_extra_a_camera_raw_is_named_with_the_line_to_paste(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.dng").write_bytes(make_dng(encode(red_above_blue(), "JPEG")))
    (tmp_path / "b.jpg").write_bytes(encode(red_above_blue(), "HEIF"))
    program = """
import sys
from pathlib import Path
sys.modules["rawpy"] = None
from aladin_network.errors import ImageError
from aladin_network.photos.decoding import read_image
from aladin_network.photos.formats import FORMATS, PHOTO_SUFFIXES, UNREADABLE_SUFFIXES
assert "RAW" not in FORMATS and {".heic", ".dng"} & PHOTO_SUFFIXES == {".heic"}
print(UNREADABLE_SUFFIXES[".cr2"])
try:
    read_image(Path(sys.argv[1], "a.dng"))
except ImageError as error:
    print(error.reason)
print(read_image(Path(sys.argv[1], "b.jpg")).size)
"""
    lines = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    ).stdout.splitlines()
    says = "camera RAW is read by rawpy: pip install 'aladin-search[raw]'"
    assert lines == [says, says, "(64, 96)"]
