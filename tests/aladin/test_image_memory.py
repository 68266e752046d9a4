"""What decoding takes in memory, what it is said to take, and that its pixels are as ever."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_network.errors import ImageTooLargeError
from aladin_network.photos.decoding import ImageLimits, decode_image, decoded_image
from aladin_network.photos.memory import DecodingMemory, MemoryLimitError, decoding_bytes
from tests.aladin.pictures import long_png, webp_of

# More rows than one strip has, and no multiple of it.
SIZE = (600, 500)
ORIENTATION = 0x0112


def encode(picture: Image.Image, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    picture.save(target, kind, **options)
    return target.getvalue()


def before(data: bytes) -> Image.Image:
    """Decode as all indexes were built: every step on the whole picture."""
    with Image.open(io.BytesIO(data)) as picture:
        picture.load()
        turned = picture
        if picture.getexif().get(ORIENTATION) == 6:
            turned = picture.transpose(Image.Transpose.ROTATE_270)
        if turned.mode.startswith(("I", "F")):
            values = np.array(turned, dtype=np.float32)
            np.nan_to_num(values, copy=False, posinf=255)
            values *= 1.0 if values.max(initial=0) <= 255 else 255.0 / 65535.0
            np.clip(values, 0, 255, out=values)
            return Image.fromarray(values.astype(np.uint8)).convert("RGB")
        if turned.has_transparency_data:
            turned = turned.convert("RGBA")
            page = Image.new("RGBA", turned.size, "white")
            return Image.alpha_composite(page, turned).convert("RGB")
        return turned.convert("RGB")


@cache
def pictures() -> dict[str, bytes]:
    """Pictures of every kind that is converted, with noise in each channel."""
    noise = np.random.default_rng(0).integers(0, 256, (SIZE[1], SIZE[0], 4), dtype=np.uint8)
    clear, solid = Image.fromarray(noise), Image.fromarray(noise[..., :3])
    grey, palette = solid.convert("L"), solid.quantize(32)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    deep = noise[..., 0].astype(np.uint16) * 256 + noise[..., 1]
    odd = noise[..., 0].astype(np.float32)
    odd[0, :3] = np.nan, np.inf, -np.inf
    return {
        "png rgba": encode(clear, "PNG"),
        "png rgba, turned": encode(clear, "PNG", exif=exif),
        "png la": encode(clear.convert("LA"), "PNG"),
        "png palette with a clear colour": encode(palette, "PNG", transparency=3),
        "png palette with shades": encode(palette, "PNG", transparency=bytes(range(32))),
        "png rgb with a clear colour": encode(solid, "PNG", transparency=(1, 2, 3)),
        "png grey with a clear shade": encode(grey, "PNG", transparency=7),
        "png 1 bit with a clear shade": encode(grey.convert("1"), "PNG", transparency=0),
        "png 16 bit": encode(Image.fromarray(deep), "PNG"),
        "png 16 bit, turned": encode(Image.fromarray(deep), "PNG", exif=exif),
        "png 16 bit, dark": encode(Image.fromarray(deep % 200), "PNG"),
        "webp rgba": encode(clear, "WEBP", lossless=True),
        "webp rgba, turned": encode(clear, "WEBP", lossless=True, exif=exif),
        "gif with a clear colour": encode(palette, "GIF", transparency=3),
        "tiff rgba": encode(clear, "TIFF", compression="tiff_lzw"),
        "tiff float": encode(Image.fromarray(odd[..., None].squeeze()), "TIFF"),
        "tiff 32 bit": encode(solid.convert("L").convert("I"), "TIFF"),
        "tiff cmyk": encode(solid.convert("CMYK"), "TIFF"),
        "jpeg, turned": encode(solid, "JPEG", exif=exif),
        "jpeg cmyk": encode(solid.convert("CMYK"), "JPEG"),
    }


# Kinds of `pictures`: they are drawn by the first test, not by every process that collects it.
KINDS = [
    "png rgba",
    "png rgba, turned",
    "png la",
    "png palette with a clear colour",
    "png palette with shades",
    "png rgb with a clear colour",
    "png grey with a clear shade",
    "png 1 bit with a clear shade",
    "png 16 bit",
    "png 16 bit, turned",
    "png 16 bit, dark",
    "webp rgba",
    "webp rgba, turned",
    "gif with a clear colour",
    "tiff rgba",
    "tiff float",
    "tiff 32 bit",
    "tiff cmyk",
    "jpeg, turned",
    "jpeg cmyk",
]


def test_every_kind_is_tested() -> None:
    assert list(pictures()) == KINDS


@pytest.mark.parametrize("name", KINDS)
def test_pixels_are_those_that_every_index_was_built_of(name: str) -> None:
    data = pictures()[name]
    now, then = decode_image(data), before(data)
    assert (now.mode, now.size) == ("RGB", then.size)
    assert now.tobytes() == then.tobytes()
    with decoded_image(data, DecodingMemory()) as reserved:
        assert reserved.picture.tobytes() == then.tobytes()


_MEASURE = """
import json, os, sys
from aladin_network.photos.decoding import decode_image
data = sys.stdin.buffer.read()
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
open("/proc/self/clear_refs", "w").write("5")
before = peak()
photo = decode_image(data)
print(json.dumps(peak() - before))
"""


def large(kind: str) -> bytes:
    """A picture of 4 million pixels."""
    side = 2000
    ramp = Image.linear_gradient("L").resize((side, side)).convert("RGB")
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    clear = ramp.convert("RGBA")
    clear.putalpha(128)
    match kind:
        case "jpeg, turned":
            return encode(ramp, "JPEG", exif=exif)
        case "progressive jpeg":
            return encode(ramp, "JPEG", progressive=True, subsampling=0)
        case "png rgba, turned":
            return encode(clear, "PNG", exif=exif)
        case "webp rgba":
            return encode(clear, "WEBP", lossless=True, method=0)
        case "webp of 34 bytes":
            return webp_of(side, side)
        case "tiff float":
            return encode(ramp.convert("F"), "TIFF")
        case _:
            return encode(clear, "TIFF", compression="tiff_deflate", strip_size=2**30)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    "kind",
    [
        "jpeg, turned",
        "progressive jpeg",
        "png rgba, turned",
        "webp rgba",
        "webp of 34 bytes",
        "tiff float",
        "tiff rgba in one strip",
    ],
)
def test_decoding_takes_no_more_memory_than_is_reserved(kind: str) -> None:
    data = large(kind)
    with Image.open(io.BytesIO(data)) as picture:
        reserved = decoding_bytes(picture, data)
    command = [sys.executable, "-c", _MEASURE]
    told = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True, timeout=120)
    assert json.loads(told.stdout) <= reserved
    assert reserved < 24 * 2000 * 2000


def test_a_progressive_jpeg_is_known_to_take_more() -> None:
    photo = Image.linear_gradient("L").resize((800, 600)).convert("RGB")
    sizes: list[int] = []
    for progressive in (False, True):
        data = encode(photo, "JPEG", progressive=progressive)
        with Image.open(io.BytesIO(data)) as picture:
            picture.draft(None, (100, 100))
            sizes.append(decoding_bytes(picture, data))
    # Its coefficients stay in memory, of all pixels, also where it is decoded to a smaller size.
    assert sizes[1] - sizes[0] > 4 * 800 * 600


def test_the_memory_is_held_until_the_picture_is_not_needed() -> None:
    memory, data = DecodingMemory(), encode(Image.new("RGB", (100, 50)), "PNG")
    with decoded_image(data, memory, room_bytes=1000) as photo:
        assert photo.picture.size == (100, 50)
        held = memory.held_bytes
    with decoded_image(data, memory):
        assert held == memory.held_bytes + 1000
    assert memory.held_bytes == 0


def test_a_picture_that_needs_more_than_all_memory_is_refused_before_it_is_decoded() -> None:
    memory = DecodingMemory(100 * 2**20)
    with (
        pytest.raises(MemoryLimitError, match=r"photo-7: decoding it takes \d+ bytes of memory"),
        decoded_image(webp_of(8000, 8000), memory, "photo-7"),
    ):
        pytest.fail("it was decoded")


def test_sides_are_limited() -> None:
    data = long_png(300)
    assert decode_image(data, limits=ImageLimits(max_side_px=300)).size == (300, 1)
    with pytest.raises(ImageTooLargeError, match="300 x 1 pixels, limit 299 for each side"):
        decode_image(data, limits=ImageLimits(max_side_px=299))
    with pytest.raises(ImageTooLargeError, match="for each side"):
        decode_image(long_png(64_000_000))  # 8 kB


def test_no_memory_for_what_is_made_of_a_picture_is_the_pictures_fault() -> None:
    memory, data = DecodingMemory(), encode(Image.new("RGB", (4, 4)), "PNG")
    with (
        pytest.raises(ImageTooLargeError, match="photo-7: 4 x 4 pixels, too many"),
        decoded_image(data, memory, "photo-7"),
    ):
        raise MemoryError
    assert memory.held_bytes == 0
