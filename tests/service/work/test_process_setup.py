"""Memory, decoders and open files of a process, most of them seen in processes of their own."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aladin_service.settings import ServiceSettings
from aladin_service.work import process_start
from aladin_service.work.process_setup import allow_open_files
from aladin_service.work.worker import WorkerPlan

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

# Prints how many bytes of 60 MB that lie free between pieces in use go back, without and with.
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
before = resident()
for piece in pieces[::2]:
    library.free(piece)
print(before - resident())
memory.trim_memory_regularly()
until = time.monotonic() + 10
while before - resident() < 50e6 and time.monotonic() < until:
    time.sleep(0.01)
print(before - resident())
"""

# Prints whether a circle that was garbage is gone, one that was in use stays, and what nothing
# refers to any more goes; and what the collector has to look through.
_FROZEN = """
import gc, weakref
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

_DECODE = """
import io, sys
from PIL import Image
from aladin_network.errors import ImageError
from aladin_network.photos.decoding import decode_image
from aladin_service.work.process_setup import silence_decoders
target = io.BytesIO()
Image.linear_gradient("L").save(target, "TIFF", compression="tiff_adobe_deflate")
broken = target.getvalue()
for start in (b"\\x78\\x01", b"\\x78\\x5e", b"\\x78\\x9c", b"\\x78\\xda"):
    broken = broken.replace(start, b"\\xff\\xff")

def decode():
    for data in (broken, b"II*\\0\\x08\\0\\0\\0\\x01\\0\\0\\1\\x02\\0\\xff\\xff\\xff\\xff"):
        try:
            decode_image(data)
        except ImageError:
            continue
        raise SystemExit("not broken")

decode()
print("silent from here", file=sys.stderr, flush=True)
silence_decoders()
decode()
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@needs_glibc
def test_threads_share_two_arenas() -> None:
    arenas = {
        how: run(_START + _ARENAS, how).stderr.count("Arena ") for how in ("limited", "as it is")
    }
    assert arenas["limited"] <= 2 < arenas["as it is"]  # or the test shows nothing


@needs_glibc
def test_free_memory_between_pieces_in_use_is_released() -> None:
    as_it_is, trimmed = map(int, run(_HOLES).stdout.split())
    assert as_it_is < 50e6 < trimmed


def test_loaded_objects_are_not_collected_anew_and_still_freed() -> None:
    assert run(_FROZEN).stdout.split() == ["False", "True", "False", "True"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere libtiff may go on printing")
def test_broken_pictures_write_nothing_to_the_log_once_decoders_are_silent() -> None:
    loud, silent = run(_DECODE).stderr.split("silent from here\n")
    assert loud != ""
    assert silent == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ((128, 4096), (856, 4096)),
        ((1024, 4096), (1024, 4096)),
        ((856, 4096), (856, 4096)),
        ((128, 856), (856, 856)),
        ((128, -1), (856, -1)),
        ((-1, -1), (-1, -1)),
        ((128, 500), (500, 500)),
    ],
)
def test_a_limit_of_open_files_that_is_too_low_is_raised_as_far_as_allowed(
    before: tuple[int, int],
    expected: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import resource

    limits = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, chosen: limits.append(chosen))
    allow_open_files(600)
    assert limits[-1] == expected
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert ["856 open files, but the system allows 500" in each for each in warned] == (
        [True] if expected[0] == 500 else []
    )


def test_a_start_that_fails_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pair = socket.socketpair()

    def fail(**_: object) -> None:
        raise OSError("no room for another process")

    monkeypatch.setattr(process_start.socket, "socketpair", lambda: pair)
    monkeypatch.setattr(process_start, "prepare_processes", lambda *_: None)
    monkeypatch.setattr(process_start._CONTEXT, "Process", fail)
    with pytest.raises(OSError, match="no room"):
        process_start.start_process(WorkerPlan(index=tmp_path, settings=ServiceSettings()))
    assert [each.fileno() for each in pair] == [-1, -1]
