"""Upgrades that die by SIGKILL, each in a process of its own, and are then resumed.

    python -m tests.index.upgrade.killed_upgrades INDEX CHECKPOINT OUT

Copies INDEX to ``OUT/alone-PLACE-N`` for each place to die, and prints the names of those. In
``OUT/changed-PLACE-N``, an item is added and another one deleted before the upgrade is resumed.
"""

from __future__ import annotations

import shutil
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.generations import collection_writer as side_writer
from aladin_index.generations.reader import open_index
from aladin_index.items.tables import StoredItem
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.run import upgrade_index
from aladin_network.checkpoint_files import read_model_id
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.types import NullProgress
from tests.index.deaths import Death, arm, in_a_process

DEATHS = [
    Death("fsync", 2),  # while the model is copied
    Death("rename", 3),  # before the first shard is whole
    Death("advance", 18),  # while texts are encoded
    Death("write_items", 2),  # while the generation's files are written
    Death("replace", 4),  # before it is known that a generation is being published
    Death("replace", 5),  # before it is live
    Death("rename", 12),  # before the work is thrown away
]
# The same, with changes of the index between the death and the end.
DEATHS_BESIDE_CHANGES = [
    Death("advance", 7),
    Death("insert_items", 2),  # while a change is carried over; the first is the change itself
    Death("replace", 7),  # before the carried changes and their generation are live
]
SETTINGS = BuildSettings(batch_size=3, shard_items=6)


def upgrade(index: Path, checkpoint: Path, death: Death | None) -> None:
    """Upgrade in this process, or go on with it; it may have to die."""
    set_compute_threads(1)
    progress = NullProgress()
    if death is not None:
        arm(death, progress)
        if death in DEATHS_BESIDE_CHANGES[1:]:
            _add_before_the_switch(index)
    upgrade_index(index, checkpoint, SETTINGS, progress)


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
        collection = opened.collection("texts")
        item: StoredItem = collection.items.by_rows([0])[0]
        tokens = collection.tokens(0)
        new = ItemBatch(
            items=[item._replace(id=added)],
            embeddings=collection.embeddings([0]),
            tokens=tokens,
            lengths=np.array([len(tokens)]),
        )
        writer.add("texts", new, "error")
        if delete is not None:
            writer.delete("texts", [delete])


def main() -> None:
    """Die at each place, change the index and resume."""
    index, checkpoint, out = (Path(argument) for argument in sys.argv[1:])
    Image.init()
    for kind, deaths in (("alone", DEATHS), ("changed", DEATHS_BESIDE_CHANGES)):
        for death in deaths:
            broken = out / f"{kind}-{death.place}-{death.at}"
            shutil.copytree(index, broken)
            killed = in_a_process(lambda: upgrade(broken, checkpoint, death))  # noqa: B023
            assert killed == signal.SIGKILL, death
            if kind == "changed":
                # Elsewhere: this process must not start threads, which a fork would lack.
                assert in_a_process(lambda: change(broken, "added", "text 5")) == 0  # noqa: B023
            assert in_a_process(lambda: upgrade(broken, checkpoint, None)) == 0  # noqa: B023
            sys.stdout.write(f"{broken.name}\n")


if __name__ == "__main__":
    main()
