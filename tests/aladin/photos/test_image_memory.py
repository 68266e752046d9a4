"""What decoding takes in memory, what it is said to take, and that its pixels are as ever."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from PIL import Image

from aladin_network.errors import ImageTooLargeError
from aladin_network.photos.decoding import decode_image, decoded_image
from aladin_network.photos.memory import DecodingMemory, MemoryLimitError, decoding_bytes
from tests.aladin.pictures import encode, turned, webp_of

# More rows than one strip has, and no multiple of it.
SIZE = (600, 500)
ORIENTATION = 0x0112


def before(data: bytes) -> Image.Image:
    """Decode as all indexes were built: every step on the whole picture."""
    with Image.open(io.BytesIO(data)) as picture:
        picture.load()
        upright = picture
        if picture.getexif().get(ORIENTATION) == 6:
            upright = picture.transpose(Image.Transpose.ROTATE_270)
        if upright.mode.startswith(("I", "F")):
            values = np.array(upright, dtype=np.float32)
            np.nan_to_num(values, copy=False, posinf=255)
            values *= 1.0 if values.max(initial=0) <= 255 else 255.0 / 65535.0
            np.clip(values, 0, 255, out=values)
            return Image.fromarray(values.astype(np.uint8)).convert("RGB")
        if upright.has_transparency_data:
            upright = upright.convert("RGBA")
            page = Image.new("RGBA", upright.size, "white")
            return Image.alpha_composite(page, upright).convert("RGB")
        return upright.convert("RGB")


@cache
def noise() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (SIZE[1], SIZE[0], 4), dtype=np.uint8)


def clear() -> Image.Image:
    return Image.fromarray(noise())


def solid(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(noise()[..., :3]).convert(mode)


def palette() -> Image.Image:
    return solid().quantize(32)


def deep() -> np.ndarray:
    return noise()[..., 0].astype(np.uint16) * 256 + noise()[..., 1]


def odd() -> np.ndarray:
    values = noise()[..., 0].astype(np.float32)
    values[0, :3] = np.nan, np.inf, -np.inf
    return values


# Pictures of every kind that is converted, with noise in each channel; drawn when they are tested.
PICTURES: dict[str, Callable[[], bytes]] = {
    "png rgba": lambda: encode(clear(), "PNG"),
    "png rgba, turned": lambda: encode(clear(), "PNG", exif=turned(6)),
    "png grey": lambda: encode(solid("L"), "PNG"),
    "png 1 bit": lambda: encode(solid("1"), "PNG"),
    "png palette": lambda: encode(palette(), "PNG"),
    "png la": lambda: encode(clear().convert("LA"), "PNG"),
    "png palette with a clear colour": lambda: encode(palette(), "PNG", transparency=3),
    "png palette with shades": lambda: encode(palette(), "PNG", transparency=bytes(range(32))),
    "png rgb with a clear colour": lambda: encode(solid(), "PNG", transparency=(1, 2, 3)),
    "png grey with a clear shade": lambda: encode(solid("L"), "PNG", transparency=7),
    "png 1 bit with a clear shade": lambda: encode(solid("1"), "PNG", transparency=0),
    "png 16 bit": lambda: encode(Image.fromarray(deep()), "PNG"),
    "png 16 bit, turned": lambda: encode(Image.fromarray(deep()), "PNG", exif=turned(6)),
    "png 16 bit, dark": lambda: encode(Image.fromarray(deep() % 200), "PNG"),
    "webp rgba": lambda: encode(clear(), "WEBP", lossless=True, method=0),
    "webp rgba, turned": lambda: encode(clear(), "WEBP", lossless=True, method=0, exif=turned(6)),
    "gif with a clear colour": lambda: encode(palette(), "GIF", transparency=3),
    "tiff rgba": lambda: encode(clear(), "TIFF", compression="tiff_lzw"),
    "tiff float": lambda: encode(Image.fromarray(odd()), "TIFF"),
    "tiff 32 bit": lambda: encode(solid("L").convert("I"), "TIFF"),
    "tiff cmyk": lambda: encode(solid("CMYK"), "TIFF"),
    "jpeg, turned": lambda: encode(solid(), "JPEG", exif=turned(6)),
    "jpeg cmyk": lambda: encode(solid("CMYK"), "JPEG"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pixels_are_those_that_every_index_was_built_of(name: str) -> None:
    data = PICTURES[name]()
    now, then = decode_image(data), before(data)
    assert (now.mode, now.size) == ("RGB", then.size)
    assert now.tobytes() == then.tobytes()


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


def ramp(mode: str = "RGB") -> Image.Image:
    """A picture of 4 million pixels."""
    picture = Image.linear_gradient("L").resize((2000, 2000)).convert(mode)
    if mode == "RGBA":
        picture.putalpha(128)
    return picture


LARGE: dict[str, Callable[[], bytes]] = {
    "jpeg, turned": lambda: encode(ramp(), "JPEG", exif=turned(6)),
    "progressive jpeg": lambda: encode(ramp(), "JPEG", progressive=True, subsampling=0),
    "png rgba, turned": lambda: encode(ramp("RGBA"), "PNG", exif=turned(6), compress_level=1),
    "webp rgba": lambda: encode(ramp("RGBA"), "WEBP", lossless=True, method=0),
    "webp of 34 bytes": lambda: webp_of(2000, 2000),
    "tiff rgba in one strip": lambda: encode(
        ramp("RGBA"), "TIFF", compression="tiff_deflate", strip_size=2**30
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("kind", LARGE)
def test_decoding_takes_no_more_memory_than_is_reserved(kind: str) -> None:
    data = LARGE[kind]()
    with Image.open(io.BytesIO(data)) as picture:
        reserved = decoding_bytes(picture, data)
    command = [sys.executable, "-c", _MEASURE]
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True, timeout=120)
    assert json.loads(done.stdout) <= reserved
    assert reserved < 24 * 2000 * 2000


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


def test_no_memory_for_what_is_made_of_a_picture_is_the_pictures_fault() -> None:
    memory, data = DecodingMemory(), encode(Image.new("RGB", (4, 4)), "PNG")
    with (
        pytest.raises(ImageTooLargeError, match="photo-7: 4 x 4 pixels, too many"),
        decoded_image(data, memory, "photo-7"),
    ):
        raise MemoryError
    assert memory.held_bytes == 0
