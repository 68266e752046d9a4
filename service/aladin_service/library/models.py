"""The models that this user has downloaded or converted: what they take, and their removal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aladin_network.checkpoint_files import read_config
from aladin_network.errors import CheckpointError, InputError, brief


@dataclass(frozen=True, kw_only=True)
class KeptModel:
    """A model in the cache of models.

    Attributes:
        name: Name by which it was asked for.
        folder: Its checkpoint.
        size: Bytes of its files, each counted once.
        own: Bytes that its removal frees; the others an index, a folder or the hub's cache has too.
    """

    name: str
    folder: Path
    size: int
    own: int


def kept_models(cache: Path) -> list[KeptModel]:
    """Return the models of a cache by name; what is no model is left out."""
    found: list[KeptModel] = []
    for folder in sorted(cache.glob("[!.]*")):
        with suppress(CheckpointError):
            source = read_config(folder).model.image_encoder.source
            files = [path.stat() for path in folder.rglob("*") if path.is_file()]
            sizes = {each.st_ino: each.st_size for each in files}
            own = sum(each.st_size for each in files if each.st_nlink == 1)
            name = source or folder.name
            found.append(KeptModel(name=name, folder=folder, size=sum(sizes.values()), own=own))
    return sorted(found, key=lambda each: each.name)


def remove_model(cache: Path, name: str) -> Sequence[KeptModel]:
    """Remove a model; an index that has it keeps it.

    Args:
        cache: Folder of the models.
        name: Its name, of all revisions that are there, or that of its folder.

    Returns:
        What was removed.

    Raises:
        InputError: If there is no such model.
    """
    models = kept_models(cache)
    doomed = [each for each in models if name in (each.name, each.folder.name)]
    if not doomed:
        known = ", ".join(dict.fromkeys(each.name for each in models)) or "none"
        raise InputError(f"expected the name of a model, got {brief(name)}; known: {known}")
    for each in doomed:
        # Moved first: what a kill leaves is no model any more.
        moved = each.folder.with_name(f".{each.folder.name}.{os.getpid()}.partial")
        each.folder.rename(moved)
        shutil.rmtree(moved)
        each.folder.with_name(f".{each.folder.name}.lock").unlink(missing_ok=True)
    return doomed


def hub_bytes(name: str) -> int:
    """Return how much the hub's own cache, which other programs share, has of a model."""
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError:
        return 0
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return 0
    name = name.partition(":")[0]
    return sum(each.size_on_disk for each in repositories if each.repo_id == name)
