"""A process that is small again after large photos."""

from __future__ import annotations

import subprocess
import sys

import pytest

_DECODE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from aladin.errors import ImageError
from aladin.images import decode_image
from benchmarks.broken_images import broken_images
from service.process.decoder_noise import silence_decoders
from service.process.large_memory import return_large_memory
silence_decoders()
if sys.argv[1] == "returned":
    return_large_memory()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def decode(image):
    try:
        decode_image(image.data)
    except ImageError:
        pass

images = list(broken_images(120, 1))
before = resident()
with ThreadPoolExecutor(4) as threads:
    for _ in range(4):
        list(threads.map(decode, images))
print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="as glibc does it")
def test_large_photos_leave_nothing_behind() -> None:
    grown = {
        how: int(
            subprocess.run(
                [sys.executable, "-c", _DECODE, how], capture_output=True, text=True, check=True
            ).stdout
        )
        for how in ("returned", "kept")
    }
    assert grown["returned"] < 40e6 < grown["kept"]
