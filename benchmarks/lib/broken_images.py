"""Broken or malicious picture files, reproducible by seed.

    from benchmarks.lib.broken_images import bombs, broken_images

A bomb is a small file that asks for much: pixels, memory or time. A broken image is a sound one of
any format in which something was changed.
"""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

_EXTREMES = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_HEADER_BYTES = 96
_CMYK_ADOBE_PX = (61, 47)


class BrokenImage(NamedTuple):
    """A file that may not be a valid picture.

    Attributes:
        name: Name of the original file and of the change made to it.
        data: Content of the whole file.
    """

    name: str
    data: bytes


@cache
def seeds() -> dict[str, bytes]:
    """Return valid pictures of every format and most of its variants, a few kB each."""
    noise = np.random.default_rng(0).integers(0, 256, (47, 61, 3), dtype=np.uint8)
    flat = Image.linear_gradient("L").resize(_CMYK_ADOBE_PX).convert("RGB")
    rough = Image.fromarray(noise)
    frames: dict[str, Any] = {"save_all": True, "append_images": [rough, flat], "duration": 40}
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "camera"
    exif.get_ifd(0x8825)[1] = "N"
    grey16 = Image.fromarray(noise[..., 0].astype(np.uint16) * 257)
    return {
        "jpeg": _encode(rough, "JPEG", quality=80),
        "jpeg progressive": _encode(rough, "JPEG", progressive=True),
        "jpeg exif": _encode(flat, "JPEG", exif=exif, comment=b"a comment", dpi=(72, 72)),
        "jpeg grey": _encode(flat.convert("L"), "JPEG"),
        "jpeg cmyk": _encode(flat.convert("CMYK"), "JPEG"),
        "mpo": _encode(flat, "MPO", save_all=True, append_images=[rough]),
        "png": _encode(rough, "PNG"),
        "png palette": _encode(flat.convert("P"), "PNG", transparency=0),
        "png 16 bit": _encode(grey16, "PNG"),
        "png alpha": _encode(flat.convert("RGBA"), "PNG", exif=exif, icc_profile=b"profile" * 9),
        "png 1 bit": _encode(flat.convert("1"), "PNG"),
        "apng": _encode(flat, "PNG", **frames),
        "webp exif": _encode(rough, "WEBP", exif=exif.tobytes()),
        "webp lossless": _encode(flat.convert("RGBA"), "WEBP", lossless=True),
        "webp animated": _encode(flat, "WEBP", **frames),
        "gif": _encode(flat.convert("P"), "GIF"),
        "gif animated": _encode(flat, "GIF", comment=b"a comment", **frames),
        "bmp": _encode(rough, "BMP"),
        "bmp palette": _encode(flat.convert("P"), "BMP"),
        "bmp 1 bit": _encode(flat.convert("1"), "BMP"),
        "tiff exif": _encode(rough, "TIFF", exif=exif),
        "tiff lzw": _encode(flat, "TIFF", compression="tiff_lzw"),
        "tiff deflate": _encode(flat, "TIFF", compression="tiff_adobe_deflate"),
        "tiff jpeg": _encode(rough, "TIFF", compression="jpeg"),
        "tiff packbits": _encode(flat, "TIFF", compression="packbits"),
        "tiff fax": _encode(flat.convert("1"), "TIFF", compression="group4"),
        "tiff 16 bit": _encode(grey16, "TIFF"),
        "tiff float": _encode(flat.convert("F"), "TIFF"),
        "tiff pages": _encode(flat, "TIFF", save_all=True, append_images=[rough]),
        "big tiff": _encode(flat, "TIFF", big_tiff=True),
    }


@cache
def bombs() -> dict[str, bytes]:
    """Return small files that require large resources: each must be refused at a small cost."""
    jpeg = _encode(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    png = _encode(Image.new("RGB", (8, 8)), "PNG")
    large = zlib.compress(bytes(64 * 2**20), 1)
    text = _png_chunk(b"zTXt", b"a\0\0" + large)
    profile = _png_chunk(b"iCCP", b"a\0\0" + large)
    return {
        "png of 2.5 billion pixels": _png(50_000, 50_000),
        "png of 100 million pixels": _png(10_000, 10_000),
        "png of one very long row": _png(2**31 - 1, 1),
        "png with a text of 64 MB": png[:33] + text + png[33:],
        "png with texts of 2 GB": png[:33] + 32 * text + png[33:],
        "png with a profile of 64 MB": png[:33] + profile + png[33:],
        "png of a million chunks": png[:33] + 10**6 * _png_chunk(b"teXt", b"") + png[33:],
        "png whose pixels never end": _png_start(8, 8) + _png_chunk(b"IDAT", large),
        "apng of many frames": png[:33]
        + _png_chunk(b"acTL", b"\x7f\xff\xff\xff\0\0\0\0")
        + png[33:],
        "jpeg of 4 billion pixels": _jpeg_sized(jpeg, 65_500, 65_500),
        "jpeg of 60 million pixels, all missing": _jpeg_sized(jpeg, 7_700, 7_700),
        "jpeg of a thousand scans": _many_scans(7_700, 1_000),
        "jpeg of a million comments": jpeg[:2] + 10**6 * b"\xff\xfe\0\2" + jpeg[2:],
        "jpeg of filling": jpeg[:2] + bytes([0xFF]) * 8 * 2**20 + jpeg[2:],
        "gif of 4 billion pixels": _gif((65_535, 65_535), (1, 1)),
        "gif with a frame larger than itself": _gif((1, 1), (65_535, 65_535)),
        "gif of comments": b"GIF89a\x01\0\x01\0\0\0\0" + 10**6 * b"\x21\xfe\x01a\0" + b"\x3b",
        "webp of 268 million pixels": _webp(16_383, 16_383),
        "bmp of 4 billion pixels": _bmp(65_535, 65_535, 24, 0, b""),
        "bmp with runs": _bmp(60_000_000, 1, 8, 1, b"\0\2\xff\xff" * 1000),
        "tiff of 4 billion pixels": _tiff({256: 65_535, 257: 65_535, 258: 8, 259: 1, 262: 1}),
        "tiff with a tile of 3 billion pixels": _tiff_of(large, tile=55_000),
        "tiff with a strip of 64 MB": _tiff_of(large, tile=None),
        "tiff whose directories form a ring": _ring(),
        "tiff of 65,535 tags": b"II*\0\x08\0\0\0\xff\xff" + bytes(65_535 * 12) + bytes(4),
    }


def broken_images(count: int, seed: int = 0) -> Iterator[BrokenImage]:
    """Make broken images, starting with the bombs.

    Args:
        count: Number of images.
        seed: Seed; different seeds give different images.
    """
    whole = list(bombs().items())[:count]
    for name, data in whole:
        yield BrokenImage(name, data)
    rng = random.Random(seed)
    sound = list(seeds().items())
    for number in range(count - len(whole)):
        name, data = sound[number % len(sound)]
        done: list[str] = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            change = rng.choice(_CHANGES)
            data = change(data, rng, sound)
            done.append(change.__name__.removeprefix("_"))
        yield BrokenImage(f"{name}: {', '.join(done)} ({number})", data)


def _encode(picture: Image.Image, format: str, **options: Any) -> bytes:
    target = io.BytesIO()
    picture.save(target, format, **options)
    return target.getvalue()


# Ways to damage a file.

_Sound = list[tuple[str, bytes]]


def _flipped_bits(data: bytes, rng: random.Random, __: _Sound) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 4, 32))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut_short(data: bytes, rng: random.Random, __: _Sound) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _header_edited(data: bytes, rng: random.Random, __: _Sound) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        if changed:
            place = rng.randrange(min(_HEADER_BYTES, len(changed)))
            changed[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(changed)


def _number_replaced(data: bytes, rng: random.Random, __: _Sound) -> bytes:
    """Replace what may be a size, a count or an offset by an extreme value."""
    form = rng.choice(("<H", ">H", "<I", ">I"))
    width = struct.calcsize(form)
    if len(data) < width:
        return data
    place = rng.randrange(min(len(data), 8 * _HEADER_BYTES) - width + 1)
    value = rng.choice(_EXTREMES) & (2 ** (8 * width) - 1)
    return data[:place] + struct.pack(form, value) + data[place + width :]


def _part_left_out(data: bytes, rng: random.Random, __: _Sound) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.choice((1, 4, 12, 100)) :]


def _part_repeated(data: bytes, rng: random.Random, __: _Sound) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start : start + 200] * rng.choice((2, 50)) + data[start + 200 :]


def _spliced(data: bytes, rng: random.Random, sound: _Sound) -> bytes:
    _, other = rng.choice(sound)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other)) :]


def _noise_put_in(data: bytes, rng: random.Random, __: _Sound) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.choice((1, 16, 1000))) + data[start:]


_CHANGES: tuple[Callable[[bytes, random.Random, _Sound], bytes], ...] = (
    _flipped_bits,
    _cut_short,
    _header_edited,
    _number_replaced,
    _part_left_out,
    _part_repeated,
    _spliced,
    _noise_put_in,
)


# Functions that build bombs.


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    checked = kind + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))


def _png_start(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _png_chunk(b"IHDR", header)


def _png(width: int, height: int) -> bytes:
    pixels = _png_chunk(b"IDAT", zlib.compress(bytes(2**20), 9))
    return _png_start(width, height) + pixels + _png_chunk(b"IEND", b"")


def _jpeg_sized(jpeg: bytes, width: int, height: int) -> bytes:
    frame = jpeg.index(b"\xff\xc2") + 5
    return jpeg[:frame] + struct.pack(">HH", height, width) + jpeg[frame + 4 :]


def _many_scans(side: int, count: int) -> bytes:
    """Return a progressive JPEG in which each scan refines all pixels without any change."""
    jpeg = _jpeg_sized(_encode(Image.new("L", (64, 64)), "JPEG", progressive=True), side, side)
    last = jpeg.rindex(b"\xff\xda")
    return jpeg[:last] + jpeg[last:-2] * count + jpeg[-2:]


def _gif(screen: tuple[int, int], frame: tuple[int, int]) -> bytes:
    start = b"GIF89a" + struct.pack("<HH", *screen) + b"\x80\0\0" + bytes(6)
    image = b"\x2c" + struct.pack("<HHHH", 0, 0, *frame) + b"\0\x02\x02\x4c\x01\0"
    return start + image + b"\x3b"


def _webp(width: int, height: int) -> bytes:
    small = _encode(Image.new("RGB", (8, 8)), "WEBP")
    place = small.index(b"\x9d\x01\x2a") + 3
    return small[:place] + struct.pack("<HH", width, height) + small[place + 4 :]


def _bmp(width: int, height: int, bits: int, compression: int, pixels: bytes) -> bytes:
    palette = bytes(1024) if bits == 8 else b""
    offset = 54 + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, 0, 0, 0, 0, 0)
    head = b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset)
    return head + info + palette + pixels


def _tiff(tags: dict[int, int], following: int = 0) -> bytes:
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    directory = struct.pack("<H", len(tags)) + entries + struct.pack("<I", following)
    return b"II*\0\x08\0\0\0" + directory


def _tiff_of(pixels: bytes, tile: int | None) -> bytes:
    """Return a grey TIFF of 64 x 64 pixels whose only part is encoded as `pixels`."""
    tags = {256: 64, 257: 64, 258: 8, 259: 8, 262: 1, 277: 1}
    parts = (
        {273: 0, 278: 2**31, 279: len(pixels)}
        if tile is None
        else {322: tile, 323: tile, 324: 0, 325: len(pixels)}
    )
    tags |= parts
    place = len(_tiff(tags))
    tags[273 if tile is None else 324] = place
    return _tiff(tags) + pixels


def _ring() -> bytes:
    tags = {256: 8, 257: 8, 258: 8, 259: 1, 262: 1, 273: 200, 278: 8, 279: 64}
    return _tiff(tags, following=8).ljust(264, b"\0")
