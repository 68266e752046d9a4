"""Decoders that say nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

_DECODE = """
import io, sys
from PIL import Image
from aladin_network.errors import ImageError
from aladin_network.photos.decoding import decode_image
from aladin_service.work.process_setup import silence_decoders
if sys.argv[1] == "silent":
    silence_decoders()
target = io.BytesIO()
Image.linear_gradient("L").save(target, "TIFF", compression="tiff_adobe_deflate")
broken = target.getvalue()
for start in (b"\\x78\\x01", b"\\x78\\x5e", b"\\x78\\x9c", b"\\x78\\xda"):
    broken = broken.replace(start, b"\\xff\\xff")
for data in (broken, b"II*\\0\\x08\\0\\0\\0\\x01\\0\\0\\1\\x02\\0\\xff\\xff\\xff\\xff"):
    try:
        decode_image(data)
    except ImageError:
        continue
    raise SystemExit("not broken")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere libtiff may go on printing")
def test_broken_pictures_leave_nothing_in_the_log() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", _DECODE, how], capture_output=True, text=True, check=True
        ).stderr
        for how in ("silent", "loud")
    ]
    assert said[0] == ""
    assert said[1] != ""
