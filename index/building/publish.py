"""Makes a generation live: readers see the old one or the new one, and nothing in between."""

from __future__ import annotations

import shutil
from pathlib import Path

from aladin.atomic import atomic_folder, sync
from aladin.checkpoint import CHECKPOINT_FILES
from aladin.errors import CheckpointError, IndexMismatchError
from index.layout import (
    CURRENT,
    GENERATIONS,
    MODEL,
    generation_folder,
    live_generation,
    set_live_generation,
)
from index.manifest import ModelEntry, describe_files, read_manifest


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


def place_generation(root: Path, folder: Path, generation: int) -> None:
    """Move a finished generation into its place, whole; readers do not see it before it is live.

    Args:
        root: of the index.
        folder: with all files of the generation.
        generation: its number.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    for path in (*folder.rglob("*"), folder):
        sync(path)
    (root / GENERATIONS).mkdir(exist_ok=True)
    folder.rename(generation_folder(root, generation))
    sync(root / GENERATIONS)


def make_live(root: Path, generation: int) -> None:
    """Make a generation live that is in its place, unless a later one already is.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    if not (root / CURRENT).exists() or live_generation(root) < generation:
        set_live_generation(root, generation)
