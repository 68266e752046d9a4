"""Makes a generation live: readers see the old one or the new one, and nothing in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from aladin.atomic import atomic_file, atomic_folder, sync
from aladin.checkpoint import CHECKPOINT_FILES
from aladin.errors import CheckpointError, IndexMismatchError
from index.changes.lock import changes_lock
from index.layout import (
    CURRENT,
    GENERATIONS,
    MODEL,
    PUBLISHING,
    generation_folder,
    live_generation,
    set_live_generation,
)
from index.manifest import ModelEntry, describe_files, read_manifest

# Entered when the new generation is in its place and not yet live, left when it is live.
GoingLive = Callable[[int], AbstractContextManager[None]]


def describe_model(checkpoint_folder: Path, model_id: str) -> ModelEntry:
    """Describe a checkpoint as the manifest does."""
    return ModelEntry(id=model_id, files=describe_files(checkpoint_folder, CHECKPOINT_FILES))


def install_model(root: Path, checkpoint_folder: Path, model: ModelEntry) -> None:
    """Copy the checkpoint into an index without a live generation.

    Once there is one the copy stays, and any other model is refused.

    Args:
        root: of the index.
        checkpoint_folder: to be copied.
        model: what it holds.

    Raises:
        IndexMismatchError: the index was built with another model.
        OSError: the disk is full, or cannot be written.
    """
    if (root / CURRENT).exists():
        live = read_manifest(generation_folder(root, live_generation(root))).model
        if live.id != model.id:
            raise IndexMismatchError(f"{root}: model", live.id, model.id)
        for name, entry in live.files.items():
            if model.files.get(name) != entry:
                actual = model.files[name].sha256 if name in model.files else "none"
                raise IndexMismatchError(f"{root}: sha256 of {name}", entry.sha256, actual)
        return
    with atomic_folder(root / MODEL) as partial:
        for name in model.files:
            shutil.copyfile(checkpoint_folder / name, partial / name)
        if describe_files(partial, model.files) != model.files:
            raise CheckpointError(f"{checkpoint_folder}: changed while it was copied")


def publish_generation(
    root: Path, folder: Path, generation: int, going_live: GoingLive | None = None
) -> None:
    """Move a finished generation into its place, whole, and make it live.

    To be called by the only builder of the index. Should it be killed between the two, the next
    builder removes the generation, which nobody has seen (`index.disk.only_builder`).

    Args:
        root: of the index.
        folder: with all files of the generation.
        generation: its number.
        going_live: for what has to change in the same step: called with the number, and entered
            while the change is made; it has to keep others from adding and removing items, as
            `changes_lock` does, which is taken without it.

    Raises:
        OSError: the disk is full, or cannot be written.
        sqlite3.Error: the same, met by `going_live`.
    """
    for path in (*folder.rglob("*"), folder):
        sync(path)
    (root / GENERATIONS).mkdir(exist_ok=True)
    with atomic_file(root / PUBLISHING) as partial:
        partial.write_text(f"{generation}\n", encoding="utf-8")
    folder.rename(generation_folder(root, generation))
    sync(root / GENERATIONS)
    with going_live(generation) if going_live else changes_lock(root):
        set_live_generation(root, generation)
    (root / PUBLISHING).unlink()
