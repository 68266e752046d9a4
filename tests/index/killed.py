"""Builds and upgrades that die by SIGKILL, each in a process of its own, and are then resumed.

    python -m tests.index.killed CHECKPOINT PHOTOS INDEX NEW_CHECKPOINT OUT

Writes ``OUT/JOB-PLACE-N`` for each place to die, and prints the names of those. The process forks
from one that has imported everything, and must not start threads, which a fork would lack.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations import collection_writer
from aladin_index.generations.reader import open_index
from aladin_index.items.tables import StoredItem
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.run import upgrade_index
from aladin_network.checkpoint_files import read_model_id
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.types import NullProgress
from tests.index.deaths import Death, arm, in_a_process

# One of each kind of write; what fails without a kill is tested with a disk that is full.
BUILDS = [
    Death("fsync", 2),  # while the model is copied
    Death("advance", 5),  # in the middle of the second shard
    Death("write_items", 2),  # while the generation's files are written
    Death("replace", 5),  # before the generation's number is written down
    Death("replace", 6),  # before it is live
    Death("rmtree", 32),  # while the build's work is thrown away
]
UPGRADES = [
    Death("rename", 3),  # before the first shard is whole
    Death("replace", 4),  # before it is known that a generation is being published
    Death("replace", 5),  # before it is live
]
# The same, with changes of the index between the death and the end.
UPGRADES_BESIDE_CHANGES = [
    Death("insert_items", 2),  # while a change is carried over; the first is the change itself
    Death("replace", 7),  # before the carried changes and their generation are live
]
UPGRADE_SETTINGS = BuildSettings(batch_size=3, shard_items=6)
TEXTS = [TextItem(id=f"t{number}", text="two dogs run " * (number + 1)) for number in range(5)]


def photo_items(photos: Path) -> list[ImageItem]:
    """The photos of a folder, with metadata."""
    return [
        ImageItem(
            id=path.stem, path=path, uri=path.name, metadata={"name": path.stem, "a": 1, "b": [2]}
        )
        for path in sorted(photos.iterdir())
    ]


def change(index: Path, added: str, delete: str | None) -> None:
    """Add a text like the first one of the index, and delete another text."""
    set_compute_threads(1)
    model_id = read_model_id(index / "model")
    with open_index(index) as opened, closing(ChangesWriter(index, model_id)) as writer:
        collection = opened.collection("texts")
        item: StoredItem = collection.items.by_rows([0])[0]
        tokens, embeddings = collection.tokens(0), collection.embeddings([0])
        items = [item._replace(id=added)]
        writer.add("texts", ItemBatch(items, embeddings, tokens, np.array([len(tokens)])), "error")
        if delete is not None:
            writer.delete("texts", [delete])


def _add_before_the_switch(index: Path) -> None:
    """Add an item when the files of the new generation are written, to be carried over."""
    write = collection_writer.write_items

    def adding(path: Path, *arguments: Any) -> None:
        write(path, *arguments)
        if path.parent.name == "texts":
            change(index, "carried", delete=None)

    collection_writer.write_items = adding


def die_and_resume(
    name: str, death: Death, job: Callable[[NullProgress, bool], None], between: Any = None
) -> None:
    """Run a job that dies, something between, and the job again."""

    def dying() -> None:
        set_compute_threads(1)
        progress = NullProgress()
        arm(death, progress)
        job(progress, False)

    def resuming() -> None:
        set_compute_threads(1)
        job(NullProgress(), True)

    assert in_a_process(dying) == signal.SIGKILL, death
    if between is not None:
        assert in_a_process(between) == 0
    assert in_a_process(resuming) == 0
    sys.stdout.write(f"{name}\n")


def main() -> None:
    """Die at each place and resume."""
    checkpoint, photos, index, new_checkpoint, out = map(Path, sys.argv[1:])
    Image.init()
    for death in BUILDS:
        broken = out / f"build-{death.place}-{death.at}"

        def build(progress: NullProgress, resume: bool, broken: Path = broken) -> None:
            form: dict[str, Any] = {"shard_items": 4, "batch_size": 2, "token_dtype": "4bit"}
            settings = BuildSettings(**form, resume=resume)
            build_index(checkpoint, broken, photo_items(photos), TEXTS, settings, progress)

        die_and_resume(broken.name, death, build)
    for kind, deaths in (("alone", UPGRADES), ("changed", UPGRADES_BESIDE_CHANGES)):
        for death in deaths:
            broken = out / f"{kind}-{death.place}-{death.at}"
            shutil.copytree(index, broken)

            def upgrade(
                progress: NullProgress, resume: bool, root: Path = broken, kind: str = kind
            ) -> None:
                if kind == "changed" and not resume:
                    _add_before_the_switch(root)
                upgrade_index(root, new_checkpoint, UPGRADE_SETTINGS, progress)

            def changed(root: Path = broken) -> None:
                change(root, "added", "text 5")

            die_and_resume(broken.name, death, upgrade, changed if kind == "changed" else None)


if __name__ == "__main__":
    main()
