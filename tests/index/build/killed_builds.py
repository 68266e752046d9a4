"""Builds that die by SIGKILL, each in a process of its own, and are then resumed.

    python killed_builds.py CHECKPOINT PHOTOS OUT

Writes ``OUT/PLACE-N`` for each place to die, and prints the names of those.
Forked from one process that has imported everything, for imports are most of a build's time.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aladin_index.build.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations import collection_writer as side_writer
from aladin_index.settings import BuildSettings
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.types import NullProgress

# (what is counted, at which count the process dies just before doing it)
DEATHS = [
    ("fsync", 2),  # while the model is copied
    ("replace", 1),  # before there is a plan
    ("advance", 2),  # while the texts are listed
    ("advance", 5),  # in the middle of the second shard
    ("rename", 5),  # before the first shard of the texts is whole
    ("write_items", 2),  # while the generation's files are written
    ("replace", 4),  # before the manifest
    ("replace", 5),  # before the generation's number is written down
    ("rename", 7),  # before it is in its place
    ("replace", 6),  # before it is live
    ("rename", 8),  # before the build's work is thrown away
    ("rmtree", 32),  # while it is
    ("rmtree", 33),  # before the list of the items is thrown away
]


class Deadly:
    """Dies by SIGKILL at the n-th call, before doing anything."""

    def __init__(self, function: Callable[..., Any], at: int) -> None:
        self._function = function
        self._left = at

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._function(*arguments, **options)


def arm(place: str, at: int, progress: NullProgress) -> None:
    """Make this process die at a place."""
    if place == "advance":
        progress.advance = Deadly(progress.advance, at)  # type: ignore[method-assign]
    elif place == "fsync":
        os.fsync = Deadly(os.fsync, at)
    elif place == "rmtree":
        shutil.rmtree = Deadly(shutil.rmtree, at)  # type: ignore[assignment]
    elif place == "write_items":
        side_writer.write_items = Deadly(side_writer.write_items, at)
    else:
        deadly = Deadly(getattr(Path, place), at)
        setattr(Path, place, lambda path, target: deadly(path, target))


def build(checkpoint: Path, photos: Path, out: Path, resume: bool, death: tuple[str, int]) -> None:
    """Build in this process; ``("", 0)`` is no death."""
    set_compute_threads(1)
    images = [
        ImageItem(
            id=path.stem, path=path, uri=path.name, metadata={"name": path.stem, "a": 1, "b": [2]}
        )
        for path in sorted(photos.iterdir())
    ]
    texts = [TextItem(id=f"t{number}", text="two dogs run " * (number + 1)) for number in range(5)]
    progress = NullProgress()
    if death[0]:
        arm(*death, progress)
    settings = BuildSettings(shard_items=4, batch_size=2, token_dtype="4bit", resume=resume)
    build_index(checkpoint, out, images, texts, settings, progress)


def in_a_process(work: Callable[[], None]) -> int:
    """Run in a forked process and return the signal that killed it, or 0."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("a build failed by itself")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def main() -> None:
    """Die at each place and resume."""
    checkpoint, photos, out = (Path(argument) for argument in sys.argv[1:])
    for death in DEATHS:
        broken = out / f"{death[0]}-{death[1]}"
        killed = in_a_process(lambda: build(checkpoint, photos, broken, False, death))  # noqa: B023
        assert killed == signal.SIGKILL, death
        assert in_a_process(lambda: build(checkpoint, photos, broken, True, ("", 0))) == 0  # noqa: B023
        sys.stdout.write(f"{broken.name}\n")


if __name__ == "__main__":
    main()
