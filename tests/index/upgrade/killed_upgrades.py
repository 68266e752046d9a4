"""Upgrades that die by SIGKILL, each in a process of its own, and are then resumed.

    python killed_upgrades.py INDEX CHECKPOINT OUT

Copies INDEX to ``OUT/alone-PLACE-N`` for each place to die, and prints the names of those. In
``OUT/changed-PLACE-N``, an item is added and another one deleted before the upgrade is resumed.
Forked from one process that has imported everything, for imports are most of an upgrade's time.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aladin_index.changes.writer import ChangesWriter, NewItems
from aladin_index.generations import collection_writer as side_writer
from aladin_index.generations.reader import open_index
from aladin_index.items.tables import StoredItem
from aladin_index.upgrade import new_collection
from aladin_index.upgrade.encoding import EncodingSettings
from aladin_index.upgrade.run import UpgradeSettings, upgrade_index
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.encoders import hf_image, hf_text
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.types import NullProgress

# (what is counted, at which count the process dies just before doing it)
DEATHS = [
    ("fsync", 2),  # while the model is copied
    ("replace", 2),  # when there is a plan, before services are told
    ("rename", 3),  # before the first part of the sample is whole
    ("advance", 6),  # in the middle of the sample
    ("replace", 6),  # when there are methods, before services are told
    ("advance", 14),  # while the rest is encoded
    ("write_items", 2),  # while the generation's files are written
    ("rename", 13),  # before it is in its place
    ("replace", 11),  # before it is live
    ("rename", 14),  # before the work is thrown away
]
# The same, with changes of the index between the death and the end.
DEATHS_BESIDE_CHANGES = [
    ("rename", 5),  # in the sample of the texts
    ("advance", 14),
    ("insert_items", 1),  # while a change is carried over
]
# What processes would import by themselves, each for seconds.
IMPORTED = (load_checkpoint, hf_image, hf_text)
SETTINGS = EncodingSettings(batch_size=3, part_items=6, sample_items=9)


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
    elif place == "insert_items":
        new_collection.insert_items = Deadly(new_collection.insert_items, at)
    else:
        deadly = Deadly(getattr(Path, place), at)

        def move(path: Path, target: Path) -> object:
            return deadly(path, target)

        setattr(Path, place, move)


def upgrade(index: Path, checkpoint: Path, death: tuple[str, int]) -> None:
    """Upgrade in this process, or go on with it; ``("", 0)`` is no death."""
    set_compute_threads(1)
    progress = NullProgress()
    if death[0]:
        arm(*death, progress)
    if death[0] == "insert_items":
        _add_before_the_switch(index)
    upgrade_index(index, checkpoint, UpgradeSettings(resume=True, encoding=SETTINGS), progress)


def _add_before_the_switch(index: Path) -> None:
    """Add an item when the files of the new generation are written, to be carried over."""
    write = side_writer.write_items

    def adding(path: Path, *arguments: Any) -> None:
        write(path, *arguments)
        if path.parent.name == "texts":
            change(index, "carried", delete=None)

    side_writer.write_items = adding


def change(index: Path, added: str, delete: str | None) -> None:
    """Add a text like the first one of the index, and delete another text."""
    set_compute_threads(1)
    model_id = read_model_id(index / "model")
    with open_index(index) as opened, closing(ChangesWriter(index, model_id)) as writer:
        side = opened.side("texts")
        item: StoredItem = side.items.by_rows([0])[0]
        tokens = side.tokens(0)
        new = NewItems(
            items=[item._replace(id=added)],
            embeddings=side.embeddings([0]),
            tokens=tokens,
            lengths=np.array([len(tokens)]),
        )
        writer.add("texts", new, "error")
        if delete is not None:
            writer.delete("texts", [delete])


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
        raise SystemExit("an upgrade failed by itself")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def main() -> None:
    """Die at each place, change the index and resume."""
    index, checkpoint, out = (Path(argument) for argument in sys.argv[1:])
    Image.init()
    for kind, deaths in (("alone", DEATHS), ("changed", DEATHS_BESIDE_CHANGES)):
        for death in deaths:
            broken = out / f"{kind}-{death[0]}-{death[1]}"
            shutil.copytree(index, broken)
            killed = in_a_process(lambda: upgrade(broken, checkpoint, death))  # noqa: B023
            assert killed == signal.SIGKILL, death
            if kind == "changed":
                # Elsewhere: this process must not start threads, which a fork would lack.
                assert in_a_process(lambda: change(broken, "added", "text 5")) == 0  # noqa: B023
            assert in_a_process(lambda: upgrade(broken, checkpoint, ("", 0))) == 0  # noqa: B023
            sys.stdout.write(f"{broken.name}\n")


if __name__ == "__main__":
    main()
