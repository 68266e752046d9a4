"""How memory is kept, seen in processes of their own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

needs_glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="not glibc"
)

# Each program makes a call first, or none.
_START = """
import sys
from aladin_service.work.process_setup import limit_free_memory
if sys.argv[1] == "limited":
    limit_free_memory()
"""

# Prints how many arenas there are after some threads have allocated at the same time.
_ARENAS = """
import ctypes, threading
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
together = threading.Barrier(8)
def allocate():
    together.wait()
    for _ in range(200):
        library.malloc(1000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
library.malloc_stats()
"""

_LARGE = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from aladin_network.errors import ImageError
from aladin_network.photos.decoding import decode_image
from benchmarks.lib.broken_images import broken_images
from aladin_service.work.process_setup import silence_decoders
silence_decoders()

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

# Prints how many bytes go back of 60 MB that lie free between pieces that are in use.
_HOLES = """
import ctypes, time
from pathlib import Path
import aladin_service.work.process_setup as memory
memory._TRIM_S = 0.01
memory.limit_free_memory()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

pieces = [library.malloc(200_000) for _ in range(600)]
for piece in pieces:
    ctypes.memset(piece, 1, 200_000)
for piece in pieces[::2]:
    library.free(piece)
before = resident()
if sys.argv[1] == "given back":
    memory.trim_memory_regularly()
gone, until = 0, time.monotonic() + (10 if sys.argv[1] == "given back" else 0)
while gone < 50e6 and time.monotonic() < until:
    time.sleep(0.01)
    gone = before - resident()
print(gone)
"""

# Prints whether a circle that was garbage is gone, one that was in use stays, and what nothing
# refers to any more goes; and what the collector has to look through.
_FROZEN = """
import gc, torch, weakref
from aladin_service.work.process_setup import freeze_loaded_objects
class Thing:
    pass
gc.disable()
garbage, kept, alone = Thing(), Thing(), Thing()
garbage.itself, kept.itself = garbage, kept
seen = [weakref.ref(thing) for thing in (garbage, kept, alone)]
del garbage
loaded = len(gc.get_objects())
freeze_loaded_objects()
del alone
print(*(each() is not None for each in seen), len(gc.get_objects()) < loaded / 100)
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@needs_glibc
def test_threads_share_two_arenas() -> None:
    arenas = {
        how: run(_START + _ARENAS, how).stderr.count("Arena ") for how in ("limited", "as it is")
    }
    assert arenas["limited"] <= 2 < arenas["as it is"]  # or the test shows nothing


@pytest.mark.slow
@needs_glibc
def test_large_photos_leave_nothing_behind() -> None:
    grown = {how: int(run(_START + _LARGE, how).stdout) for how in ("limited", "as it is")}
    assert grown["limited"] < 60e6 < grown["as it is"]


@needs_glibc
def test_holes_between_pieces_go_back() -> None:
    gone = {how: int(run("import sys" + _HOLES, how).stdout) for how in ("given back", "as it is")}
    assert gone["as it is"] < 50e6 < gone["given back"]


def test_what_is_loaded_is_not_looked_through_and_still_goes() -> None:
    assert run(_FROZEN).stdout.split() == ["False", "True", "False", "True"]
