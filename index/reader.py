"""Opens the live generation of an index for searching."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from aladin.checkpoint import Checkpoint, load_checkpoint
from aladin.errors import (
    AladinError,
    CheckpointError,
    IndexCorruptError,
    IndexMismatchError,
    NoSuchTargetError,
)
from index.layout import MODEL, generation_folder, live_generation
from index.manifest import Manifest, check_lengths, read_manifest
from index.settings import Target
from index.side import Side, open_side, side_files


@dataclass(frozen=True, kw_only=True)
class SearchIndex:
    """One generation, memory-mapped; stays as it is while a newer one is published.

    Attributes:
        path: of the index.
        manifest: of the generation.
        checkpoint: the model that the index was built with.
        images: None if the index has no images.
        texts: None if the index has no texts.
    """

    path: Path
    manifest: Manifest
    checkpoint: Checkpoint
    images: Side | None
    texts: Side | None

    @property
    def generation(self) -> int:
        """Number of the generation."""
        return self.manifest.generation

    def side(self, target: Target) -> Side:
        """Return one side.

        Raises:
            NoSuchTargetError: the index was built without it.
        """
        side = self.images if target == "images" else self.texts
        if side is None:
            raise NoSuchTargetError(target, " and ".join(self.manifest.targets))
        return side

    def close(self) -> None:
        """Close the databases; the maps go with the last reference."""
        for side in (self.images, self.texts):
            if side is not None:
                side.items.close()

    def __enter__(self) -> SearchIndex:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


def open_index(
    path: Path,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Checkpoint | None = None,
) -> SearchIndex:
    """Open the live generation; quick, for files are mapped and only their lengths checked.

    Args:
        path: of the index.
        device: where the network goes.
        checkpoint: already loaded, to be used in place of the copy in the index; for opening a
            new generation beside the one that is being searched.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexMismatchError: of another schema version, or built with another model.
        IndexCorruptError: a file is missing or of the wrong length.
    """
    generation = live_generation(path)
    folder = generation_folder(path, generation)
    manifest = read_manifest(folder)
    if manifest.generation != generation:
        raise IndexMismatchError(f"{folder}: generation", generation, manifest.generation)
    check_lengths(folder, manifest.files)
    check_lengths(path / MODEL, manifest.model.files)
    if checkpoint is None:
        try:
            checkpoint = load_checkpoint(path / MODEL, device)
        except CheckpointError as error:
            raise IndexCorruptError(path / MODEL, str(error)) from error
    if checkpoint.model_id != manifest.model.id:
        raise IndexMismatchError(f"{path}: model", manifest.model.id, checkpoint.model_id)
    sides: dict[Target, Side] = {}
    try:
        for target in manifest.targets:
            sides[target] = _open(folder, manifest, target)
    except AladinError:
        for side in sides.values():
            side.items.close()
        raise
    return SearchIndex(
        path=path,
        manifest=manifest,
        checkpoint=checkpoint,
        images=sides.get("images"),
        texts=sides.get("texts"),
    )


def _open(folder: Path, manifest: Manifest, target: Target) -> Side:
    entry = manifest.side(target)
    assert entry is not None
    for name in side_files(target, entry):
        if name not in manifest.files:
            raise IndexCorruptError(folder / name, "not named in the manifest")
    return open_side(folder, target, entry)
