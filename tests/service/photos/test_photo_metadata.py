"""Metadata is cut out of picture files: what goes, and that the pixels stay as they are coded."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from aladin_network.photos.decoding import DEFAULT_LIMITS
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.memory import DecodingMemory
from aladin_service.photos.metadata import bare_profile, without_metadata
from aladin_service.photos.photo_bytes import cut_photo, rewritten_photo
from tests.service.photos.profiles import converted, rgb_profile

ORIENTATION, MAKE, GPS = 0x0112, 0x010F, 0x8825


def encode(kind: str, **options: Any) -> bytes:
    """Noise, in a file of a kind."""
    noise = np.random.default_rng(0).integers(0, 256, (30, 60, 3), dtype=np.uint8)
    target = io.BytesIO()
    Image.fromarray(noise).save(target, kind, **options)
    return target.getvalue()


def exif(orientation: int = 1) -> Image.Exif:
    """What a camera notes: its name, the place, and how it was held."""
    noted = Image.Exif()
    noted[MAKE], noted[ORIENTATION] = "secret camera", orientation
    noted.get_ifd(GPS)[29] = "secret place"
    return noted


def told() -> dict[str, bytes]:
    """Upright files that tell a lot."""
    xmp = b"<x:xmpmeta>secret</x:xmpmeta>"
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "secret")
    text.add_itxt("XML:com.adobe.xmp", xmp.decode())
    everything: dict[str, Any] = {"exif": exif(), "icc_profile": rgb_profile()}
    jpeg = {**everything, "xmp": xmp, "comment": b"secret", "quality": 90}
    return {
        "jpeg": encode("JPEG", **jpeg) + b"secret trailer",
        "progressive jpeg": encode("JPEG", progressive=True, **jpeg),
        "jpeg with a long profile": encode(
            "JPEG", icc_profile=rgb_profile(b"secret" * 30_000), quality=90
        ),
        "mpo": encode("MPO", save_all=True, append_images=[Image.new("RGB", (9, 9))], **jpeg),
        "png": encode("PNG", pnginfo=text, **everything) + b"secret trailer",
        "webp": encode("WEBP", xmp=xmp, **everything),
        "lossless webp": encode("WEBP", lossless=True, xmp=xmp, **everything),
    }


@pytest.mark.parametrize("name", list(told()))
def test_metadata_is_cut_out_and_pixels_and_colours_stay(tmp_path: Path, name: str) -> None:
    data = told()[name]
    path = tmp_path / "photo"
    path.write_bytes(data)
    photo = cut_photo(PhotoFile(path), "a", DEFAULT_LIMITS)
    assert photo is not None
    assert b"secr" in data or name == "png"  # whose profile is packed
    assert b"secr" not in photo.data
    with Image.open(io.BytesIO(data)) as old, Image.open(io.BytesIO(photo.data)) as new:
        assert new.get_format_mimetype() == photo.media_type
        assert not new.getexif()
        assert set(new.info) <= {
            *("icc_profile", "jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi"),
            *("progressive", "progression", "loop", "background", "timestamp", "duration"),
        }
        assert old.tobytes() == new.tobytes()
        profile = new.info["icc_profile"]
    assert b"secr" not in profile
    assert np.array_equal(converted(profile), converted(rgb_profile()))
    assert without_metadata(photo.data, new.format or "") is photo.data


def test_the_segments_of_a_jpeg_are_those_of_its_picture() -> None:
    plain = encode("JPEG", quality=90)
    assert without_metadata(plain, "JPEG") is plain
    noted = encode("JPEG", quality=90, exif=exif(), comment=b"secret")
    assert without_metadata(noted + b"\xff" * 40, "JPEG") == plain
    preview = b"\xff\xe0" + struct.pack(">H", 16 + 12) + plain[6:18] + b"\2\2" + b"secret" * 2
    assert without_metadata(plain[:2] + preview + plain[20:], "JPEG") == plain


def test_the_chunks_of_a_png_are_those_of_its_picture() -> None:
    plain = encode("PNG")
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "secret")
    assert without_metadata(encode("PNG", pnginfo=text, exif=exif()) + b"secret", "PNG") == plain
    hidden = b"bKGD" + b"secret" * 10  # longer than a colour is
    chunk = struct.pack(">I", 60) + hidden + struct.pack(">I", zlib.crc32(hidden))
    assert without_metadata(plain[:33] + chunk + plain[33:], "PNG") == plain


@pytest.mark.parametrize("kind", ["WEBP", "PNG", "JPEG"])
def test_a_file_that_is_cut_short_is_not_handed_out(kind: str) -> None:
    data = encode(kind, exif=exif())
    for share in (0.1, 0.5, 0.98):
        assert without_metadata(data[: int(share * len(data))], kind) is None


def test_frames_of_an_animation_hold_pixels_alone() -> None:
    frames: dict[str, Any] = {"save_all": True, "append_images": [Image.new("RGB", (60, 30))]}
    data = encode("WEBP", lossless=True, **frames)
    place = data.index(b"ANMF")
    (length,) = struct.unpack_from("<I", data, place + 4)
    end = place + 8 + length + length % 2
    chunk = b"prVt" + struct.pack("<I", 6) + b"secret"
    frame = b"ANMF" + struct.pack("<I", length + len(chunk)) + data[place + 8 : end] + chunk
    told = data[:place] + frame + data[end:]
    told = told[:4] + struct.pack("<I", len(told) - 8) + told[8:]
    assert without_metadata(told, "WEBP") == data


@pytest.mark.parametrize(("kind", "orientation"), [("JPEG", 6), ("PNG", 3), ("WEBP", 8)])
def test_a_turned_photo_is_written_anew(tmp_path: Path, kind: str, orientation: int) -> None:
    path = tmp_path / "photo"
    path.write_bytes(encode(kind, exif=exif(orientation), icc_profile=rgb_profile(swapped=True)))
    photo = PhotoFile(path)
    assert cut_photo(photo, "a", DEFAULT_LIMITS) is None
    data, media_type = rewritten_photo(photo, "a", DEFAULT_LIMITS, DecodingMemory())
    assert b"secr" not in data
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.get_format_mimetype() == media_type == f"image/{kind.lower()}"
        assert picture.size == ((60, 30) if orientation == 3 else (30, 60))
        assert not picture.getexif()
        profile = picture.info["icc_profile"]
    assert np.array_equal(converted(profile), converted(rgb_profile(swapped=True)))


@pytest.mark.parametrize("swapped", [False, True])
def test_the_colours_stay_and_the_rest_goes(swapped: bool) -> None:
    profile = rgb_profile(swapped=swapped)
    bare = bare_profile(profile)
    assert bare is not None
    assert b"secr" in profile
    assert b"secr" not in bare
    assert struct.unpack_from(">I", bare)[0] == len(bare)
    assert np.array_equal(converted(bare), converted(profile))
    assert bare_profile(bare) == bare


def test_tags_with_room_for_text_are_removed() -> None:
    profile = rgb_profile()
    (count,) = struct.unpack_from(">I", profile, 128)
    for place in range(132, 132 + 12 * count, 12):
        name, _, size = struct.unpack_from(">4sII", profile, place)
        if name == b"wtpt":
            hidden = profile + b"XYZ \0\0\0\0" + bytes(12) + b"secret"
            changed = hidden[:place] + struct.pack(">4sII", name, len(profile), 26)
            assert bare_profile(changed + hidden[place + 12 :]) is None
            assert size == 20
            return
    pytest.fail("the profile has no white point")


@pytest.mark.parametrize("length", [0, 40, 131, 150, 300])
def test_a_damaged_profile_is_none(length: int) -> None:
    assert bare_profile(rgb_profile()[:length]) is None
    assert bare_profile(b"\xff" * length) is None
