"""Reading of the live generation of an index, including the changes made since it was built.

Also how much of a file the operating system keeps in memory.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from aladin_index.changes.database import changes_database
from aladin_index.changes.reader import ChangesReader
from aladin_index.devices.search_device import SearchDevice
from aladin_index.format.layout import MODEL, generation_folder
from aladin_index.format.locks import GenerationLease, lease_generation, lease_live_generation
from aladin_index.format.manifest import Manifest, check_lengths, read_manifest
from aladin_index.generations.collection_writer import collection_files
from aladin_index.items.filters import Filter
from aladin_index.search.live_collection import LiveCollection
from aladin_index.search.stored_collection import StoredCollection, open_collection
from aladin_network.checkpoint import Checkpoint, load_checkpoint
from aladin_network.errors import (
    CheckpointError,
    IndexCorruptError,
    IndexMismatchError,
    NoSuchTargetError,
)
from aladin_network.types import Target


def read_ahead(path: Path) -> None:
    """Ask the system to read a file into memory; on systems that cannot be asked, do nothing."""
    if not hasattr(os, "posix_fadvise"):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)


@dataclass(frozen=True, kw_only=True)
class SearchIndex:
    """One generation, memory-mapped, and its changes; it stays when a newer one is published.

    Attributes:
        path: of the index.
        manifest: of the generation.
        checkpoint: the model that the index was built with.
        images: as they were built; None if the index has no images.
        texts: as they were built; None if the index has no texts.
        changes: of each side since.
        lease: keeps the generation from being removed while it is open.
    """

    path: Path
    manifest: Manifest
    checkpoint: Checkpoint
    images: StoredCollection | None
    texts: StoredCollection | None
    changes: Mapping[Target, ChangesReader]
    lease: GenerationLease

    @property
    def generation(self) -> int:
        """Number of the generation."""
        return self.manifest.generation

    @property
    def place(self) -> Hashable:
        """What tells the generation's files from a copy of them; None once it is closed."""
        return self.lease.place

    def side(self, target: Target, filter: Filter | None = None) -> LiveCollection:
        """Return one side as it is now, with all changes that any process has committed.

        Args:
            target: which side.
            filter: that what it finds passes; None: none.

        Raises:
            NoSuchTargetError: the index was built without it.
            IndexCorruptError: its changes cannot be read.
        """
        base = self.images if target == "images" else self.texts
        if base is None:
            raise NoSuchTargetError(target, " and ".join(self.manifest.targets))
        return LiveCollection(base=base, changes=self.changes[target].snapshot(), filter=filter)

    def check_health(self) -> None:
        """Return at once: the files are here for as long as it is open."""

    def warm(self) -> None:
        """Ask the system to read the generation's files into memory, without waiting for it."""
        folder = generation_folder(self.path, self.generation)
        for name in self.manifest.files:
            read_ahead(folder / name)

    def close(self) -> None:
        """Close the databases and let go of the generation; no search may run any more."""
        for side in (self.images, self.texts):
            if side is not None:
                side.items.close()
        for reader in self.changes.values():
            reader.close()
        self.lease.release()

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
    checkpoint: Checkpoint | None = None,
    device: SearchDevice | None = None,
    generation: int | None = None,
) -> SearchIndex:
    """Open the live generation; quick, for files are mapped and only their lengths checked.

    Its changes are read at the first search.

    Args:
        path: of the index.
        checkpoint: already loaded, to be used in place of the copy in the index; for opening a
            new generation beside the one that is being searched.
        device: where the network and the searches go; None: the processor.
        generation: to open in the place of the live one.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexMismatchError: of another schema version, or built with another model.
        IndexCorruptError: a file is missing or of the wrong length.
    """
    lease = (
        lease_live_generation(path) if generation is None else lease_generation(path, generation)
    )
    generation = lease.generation
    opened: dict[Target, StoredCollection] = {}
    try:
        folder = generation_folder(path, generation)
        manifest = read_manifest(folder)
        if manifest.generation != generation:
            raise IndexMismatchError(f"{folder}: generation", generation, manifest.generation)
        check_lengths(folder, manifest.files)
        check_lengths(path / MODEL, manifest.model.files)
        device = device or SearchDevice(torch.device("cpu"))
        checkpoint = checkpoint or _load_checkpoint(path / MODEL, device.device)
        if checkpoint.model_id != manifest.model.id:
            raise IndexMismatchError(f"{path}: model", manifest.model.id, checkpoint.model_id)
        for target in manifest.targets:
            opened[target] = _open(folder, manifest, target)
        placed = {target: device.place(side) for target, side in opened.items()}
    except BaseException:
        for side in opened.values():
            side.items.close()
        lease.release()
        raise
    return SearchIndex(
        path=path,
        manifest=manifest,
        checkpoint=checkpoint,
        images=placed.get("images"),
        texts=placed.get("texts"),
        changes={
            target: ChangesReader(
                changes_database(path, generation, target),
                side.entry.count,
                side.entry.embedding_dim,
                side.tokens.codec,
            )
            for target, side in opened.items()
        },
        lease=lease,
    )


def _load_checkpoint(folder: Path, device: torch.device) -> Checkpoint:
    try:
        return load_checkpoint(folder, device)
    except CheckpointError as error:
        raise IndexCorruptError(folder, str(error)) from error


def _open(folder: Path, manifest: Manifest, target: Target) -> StoredCollection:
    entry = manifest.side(target)
    assert entry is not None
    for name in collection_files(target, entry):
        if name not in manifest.files:
            raise IndexCorruptError(folder / name, "not named in the manifest")
    return open_collection(folder, target, entry)
