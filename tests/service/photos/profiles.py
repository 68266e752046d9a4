"""Colour profiles that tell of their owner, and what they do to colours."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms


def rgb_profile(description: bytes = b"secret owner", *, swapped: bool = False) -> bytes:
    """An RGB profile whose header and description tell of its owner."""
    plain = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    (count,) = struct.unpack_from(">I", plain, 128)
    entries = [struct.unpack_from(">4sII", plain, 132 + 12 * n) for n in range(count)]
    tags = {name: plain[start : start + size] for name, start, size in entries}
    if swapped:  # red and green, so that the profile can be seen to be used
        tags[b"rXYZ"], tags[b"gXYZ"] = tags[b"gXYZ"], tags[b"rXYZ"]
    tags[b"desc"] = b"text\0\0\0\0" + description
    tags[b"prvt"] = b"text\0\0\0\0" + description
    table, values, start = struct.pack(">I", len(tags)), b"", 132 + 12 * len(tags)
    for name, value in tags.items():
        table += struct.pack(">4sII", name, start + len(values), len(value))
        values += value + bytes(-len(value) % 4)
    header = bytearray(plain[:128])
    header[24:36], header[48:56], header[80:84] = b"secret date.", b"secretid", b"secr"
    header[:4] = struct.pack(">I", start + len(values))
    return bytes(header) + table + values


def converted(profile: bytes) -> NDArray[Any]:
    """Some colours, from a profile to sRGB."""
    ramp = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    target = ImageCms.createProfile("sRGB")
    picture = ImageCms.profileToProfile(Image.fromarray(ramp), source, target)
    assert picture is not None
    return np.asarray(picture)
