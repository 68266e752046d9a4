"""Child processes whose parent is killed, at any moment and by any way to start them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Prints the child's process id, and waits to be killed.
_PARENT = """
import multiprocessing, sys, time
import child
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    process = context.Process(target=child.run, args=(sys.argv[2],))
    process.start()
    print(process.pid, flush=True)
    time.sleep(60)
"""

_CHILD = """
from pathlib import Path
import multiprocessing, time
if multiprocessing.parent_process() is not None:
    time.sleep({import_s})
def run(file):
    from aladin_training.parallel.parent import end_with_parent
    end_with_parent()
    Path(file).write_text("alive")
    time.sleep(60)
"""


def child_of(folder: Path, method: str, import_s: float) -> tuple[subprocess.Popen[str], int]:
    """Start a process with a child whose modules take some time to be imported."""
    (folder / "child.py").write_text(_CHILD.format(import_s=import_s), encoding="utf-8")
    (folder / "parent.py").write_text(_PARENT, encoding="utf-8")
    parent = subprocess.Popen(
        [sys.executable, "parent.py", method, "alive"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout as lines:
        return parent, int(lines.readline())


def has_ended(pid: int, within_s: float = 15.0) -> bool:
    """Whether a process ends in time; one that nobody waits for counts as ended."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        except FileNotFoundError:
            return True
        if state.split()[0] == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("method", "when"),
    [
        ("spawn", "while it imports"),
        ("spawn", "while it works"),
        ("forkserver", "while it imports"),
        ("forkserver", "while it works"),
        ("fork", "while it works"),
    ],
)
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path, method: str, when: str) -> None:
    import_s = 1.5 if when == "while it imports" else 0.0
    parent, child = child_of(tmp_path, method, import_s)
    if when == "while it works":
        until_s = time.monotonic() + 30
        while not (tmp_path / "alive").exists() and time.monotonic() < until_s:
            time.sleep(0.05)
        assert (tmp_path / "alive").exists()
    parent.kill()
    parent.wait()
    assert has_ended(child)
