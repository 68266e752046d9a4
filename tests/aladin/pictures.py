"""Small files of large pictures."""

from __future__ import annotations

import struct
import zlib


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
