"""Photo files made on the fly, and small files of large pictures."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import ExifTags, Image

RED, BLUE = (255, 0, 0), (0, 0, 255)
# How a camera stores an upright picture, by its EXIF orientation.
STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def encode(picture: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    """The file of a picture."""
    if kind == "HEIF":  # pi-heif only reads them, and is what the tests read them with
        import pi_heif
        import pillow_heif

        pillow_heif.register_heif_opener()
        pi_heif.register_heif_opener()
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def red_above_blue(width: int = 64, height: int = 96) -> Image.Image:
    """A picture in which turning and mirroring up and down are seen."""
    picture = Image.new("RGB", (width, height), BLUE)
    picture.paste(RED, (0, 0, width, height // 2))
    return picture


def noise_of(side: int = 160) -> Image.Image:
    """A picture of random pixels, always the same."""
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def turned(orientation: int) -> Image.Exif:
    """EXIF data that tell an orientation."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


def is_near(picture: Image.Image, place: tuple[int, int], expected: tuple[int, ...]) -> bool:
    """Whether a pixel has a colour, but for what compression does to it."""
    colour = picture.getpixel(place)
    assert isinstance(colour, tuple)
    return all(abs(a - b) < 25 for a, b in zip(colour, expected, strict=True))


def webp_of(width: int, height: int) -> bytes:
    """A lossless WebP of one colour, in 34 bytes."""
    size = (width - 1) | (height - 1) << 14
    pixels = b"\x2f" + size.to_bytes(4, "little") + bytes.fromhex("071011fd0f4444ff03")
    chunk = b"VP8L" + struct.pack("<I", len(pixels)) + pixels
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def long_png(width: int, height: int = 1) -> bytes:
    """A grey PNG, black all over."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checked)

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + -(-width // 8)) * height))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )
