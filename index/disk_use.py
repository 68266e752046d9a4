"""What an index takes up on the disk, by part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from index.layout import CHANGES, GENERATIONS, PHOTOS, generation_folder
from index.manifest import Manifest
from index.side import ANN, EMBEDDINGS, ITEMS
from index.tokens.store import token_files

# What is none of these is `rest` of its side: offsets, and what was left out.
_STAGE_OF = {ANN: "first stage", EMBEDDINGS: "embeddings", ITEMS: "items"}


def disk_use(root: Path, manifest: Manifest) -> dict[str, int]:
    """Measure an index; every file counts once, however many generations share it.

    Args:
        root: of the index.
        manifest: of the generation whose parts are told apart.

    Returns:
        Bytes by part: of each side ``images: tokens`` and so on, ``model``, ``changes``,
        ``photos`` and ``other generations``, which is what those do not share with this one.
        Parts without a byte are missing.
    """
    parts: dict[str, int] = {}
    for name, entry in manifest.files.items():
        _add(parts, _part_of(manifest, name), entry.bytes)
    _add(parts, "model", sum(entry.bytes for entry in manifest.model.files.values()))
    seen = {(file.st_dev, file.st_ino) for file in _files(_folder(root, manifest))}
    for file in _files(root / GENERATIONS):
        if (file.st_dev, file.st_ino) not in seen:
            seen.add((file.st_dev, file.st_ino))
            _add(parts, "other generations", file.st_size)
    for folder in (CHANGES, PHOTOS):
        _add(parts, folder, sum(file.st_size for file in _files(root / folder)))
    return {part: size for part, size in parts.items() if size}


def _folder(root: Path, manifest: Manifest) -> Path:
    return generation_folder(root, manifest.generation)


def _part_of(manifest: Manifest, name: str) -> str:
    target, _, file = name.partition("/")
    side = manifest.images if target == "images" else manifest.texts
    if side is not None and file in token_files(side.token_dtype):
        return f"{target}: tokens"
    return f"{target}: {_STAGE_OF.get(file, 'rest')}"


def _add(parts: dict[str, int], part: str, size: int) -> None:
    parts[part] = parts.get(part, 0) + size


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Look at all files below a folder; one that goes meanwhile is passed over."""
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield Path(place, name).stat()
            except FileNotFoundError:
                continue
