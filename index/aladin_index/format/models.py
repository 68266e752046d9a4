"""Checkpoints of an index: that of its first generation, and those of upgrades.

A generation names its model by the sha256 of the weights. A model that came by an upgrade has a
folder of that name in ``models/``; any other is in ``model/``. Both stay on the disk as long as a
generation of the model does, so that a rollback needs nothing else.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from aladin_index.format.layout import (
    GENERATIONS,
    MODEL,
    MODELS,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import Manifest, ModelEntry, check_lengths, read_manifest
from aladin_network.errors import (
    AladinError,
    CheckpointError,
    IndexCorruptError,
    IndexMismatchError,
)
from aladin_network.files import atomic_folder, describe_files
from aladin_network.graphs.files import GRAPHS, check_graphs, read_graphs

# Digits of a model's name in `MODELS`.
_DIGITS = 16


def upgrade_model_folder(root: Path, model_id: str) -> Path:
    """Return the folder of a model that comes by an upgrade, which may not exist."""
    return root / MODELS / model_id[:_DIGITS]


def model_folder(root: Path, model_id: str) -> Path:
    """Return the folder of a generation's checkpoint.

    Args:
        root: Index folder.
        model_id: SHA-256 of the weights, as the generation's manifest names it.
    """
    folder = upgrade_model_folder(root, model_id)
    return folder if folder.is_dir() else root / MODEL


def live_model_folder(root: Path) -> Path:
    """Return the folder of the checkpoint that the live generation of an index of files is of.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        IndexCorruptError: If CURRENT or the manifest is damaged.
    """
    manifest = read_manifest(generation_folder(root, live_generation(root)))
    return model_folder(root, manifest.model.id)


def likely_model_folder(root: Path) -> Path:
    """Return the folder of the live checkpoint as far as the files tell; it may be missing.

    An index in a vector database has its first checkpoint or else any other; see
    `aladin_index.open.live_model` for the live one.
    """
    try:
        return live_model_folder(root)
    except AladinError:
        others = sorted((root / MODELS).glob("[0-9a-f]*"))
        return others[0] if others and not (root / MODEL).is_dir() else root / MODEL


def copy_model(checkpoint_folder: Path, folder: Path, model: ModelEntry) -> None:
    """Copy a checkpoint, its graphs included, into an index; the folder appears complete."""
    with atomic_folder(folder) as partial:
        for name in model.files:
            shutil.copyfile(checkpoint_folder / name, partial / name)
        if describe_files(partial, model.files) != model.files:
            raise CheckpointError(f"{checkpoint_folder}: changed while it was copied")
        if (graphs := read_graphs(checkpoint_folder, model.id)) is not None:
            shutil.copytree(checkpoint_folder / GRAPHS, partial / GRAPHS)
            check_graphs(partial, graphs)


def copy_upgrade_model(
    checkpoint_folder: Path, root: Path, model: ModelEntry, generations: Iterable[Manifest]
) -> Path:
    """Copy a checkpoint into `upgrade_model_folder`, unless its files are there.

    Generations of the same weights share one copy. One that no generation is of was left by an
    upgrade that was killed or given up, and is replaced if its files differ.
    """
    for each in generations:
        if each.model.id == model.id:
            check_same_model(f"{root}: generation {each.generation}", each.model, model)
    folder = upgrade_model_folder(root, model.id)
    if not has_model(folder, model):
        copy_model(checkpoint_folder, folder, model)
    return folder


def check_same_model(what: str, expected: ModelEntry, model: ModelEntry) -> None:
    """Compare the model of a generation, which errors call `what`, with a checkpoint, by file."""
    if expected.id != model.id:
        raise IndexMismatchError(f"{what}: model", expected.id, model.id)
    for name, entry in expected.files.items():
        if model.files.get(name) != entry:
            actual = model.files[name].sha256 if name in model.files else "none"
            raise IndexMismatchError(f"{what}: sha256 of {name}", entry.sha256, actual)


def has_model(folder: Path, model: ModelEntry) -> bool:
    """Whether a checkpoint folder has all files of a model with the same content."""
    try:
        check_lengths(folder, model.files)
    except IndexCorruptError:
        return False
    return describe_files(folder, model.files) == model.files


def drop_models(root: Path) -> None:
    """Remove the models of no generation on the disk; called by the only builder."""
    if not (root / MODELS).is_dir():
        return
    used = {
        read_manifest(root / GENERATIONS / f"{number:06d}").model.id
        for number in published_generations(root)
    }
    kept = {model_folder(root, model_id) for model_id in used}
    for folder in (*(root / MODELS).iterdir(), root / MODEL):
        if folder not in kept and folder.is_dir():
            doomed = root / f".{folder.name}.unused.partial"
            shutil.rmtree(doomed, ignore_errors=True)
            folder.rename(doomed)  # a reader finds a whole model or none
            shutil.rmtree(doomed)
