"""An index that an engine keeps, as a searcher sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from aladin.checkpoint import Checkpoint, load_checkpoint
from aladin.errors import (
    CheckpointError,
    IndexCorruptError,
    IndexMismatchError,
    NoSuchTargetError,
)
from index.devices.search_device import SearchDevice
from index.items.filter_tree import Filter
from index.layout import MODEL
from index.manifest import Manifest, check_lengths
from index.remote.client import EngineClient
from index.remote.generations import read_generation, require_live
from index.remote.record import RemoteRecord
from index.remote.remote_side import RemoteSide
from index.settings import Target


@dataclass(frozen=True, kw_only=True)
class RemoteIndex:
    """One generation in an engine; a `SearchBackend`.

    Attributes:
        path: of the folder that says where the index is and has its model.
        checkpoint: the model that the index was built with.
        client: of the engine; closed with this.
        record: of the generation.
    """

    path: Path
    checkpoint: Checkpoint
    client: EngineClient
    record: RemoteRecord

    @property
    def manifest(self) -> Manifest:
        """Of the generation, as it was pushed."""
        return self.record.manifest

    @property
    def generation(self) -> int:
        """Number of the generation."""
        return self.manifest.generation

    @property
    def place(self) -> None:
        """None: the engine has it, and no copy can be put in its place."""
        return

    def side(self, target: Target, filter: Filter | None = None) -> RemoteSide:
        """Return one side for one search; asks nothing of the engine yet.

        Raises:
            NoSuchTargetError: the index was built without it.
        """
        entry = self.manifest.side(target)
        if entry is None:
            raise NoSuchTargetError(target, " and ".join(self.manifest.targets))
        codec = self.record.codecs[target]
        return RemoteSide(self.client, self.generation, target, entry, codec, filter)

    def check_health(self) -> None:
        """Return where the engine answers.

        Raises:
            EngineUnavailableError: it does not.
        """
        self.client.check_health()

    def warm(self) -> None:
        """Do nothing: what searches read is in the engine's memory, not here."""

    def close(self) -> None:
        """Close the client; no search may run any more."""
        self.client.close()

    def __enter__(self) -> RemoteIndex:
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


def open_remote_index(
    path: Path,
    client: EngineClient,
    *,
    checkpoint: Checkpoint | None = None,
    device: SearchDevice | None = None,
    generation: int | None = None,
) -> RemoteIndex:
    """Open the live generation of an index in an engine.

    Args:
        path: of the folder with the model.
        client: of the engine; closed with the index, and where this raises.
        checkpoint: already loaded, to be used in place of the copy in the folder.
        device: where the network goes; None: the processor.
        generation: to open in the place of the live one.

    Raises:
        IndexNotReadyError: nothing is live, or there is no such generation.
        IndexMismatchError: of another schema version, or pushed with another model.
        IndexCorruptError: the record is damaged, or a file of the model is missing.
        EngineUnavailableError: the engine does not answer.
    """
    try:
        if generation is None:
            generation = require_live(client, path)
        record = read_generation(client, generation)
        model = record.manifest.model
        if checkpoint is None:
            check_lengths(path / MODEL, model.files)
            checkpoint = _load_checkpoint(path / MODEL, device)
        if checkpoint.model_id != model.id:
            raise IndexMismatchError(f"{path}: model", model.id, checkpoint.model_id)
    except BaseException:
        client.close()
        raise
    return RemoteIndex(path=path, checkpoint=checkpoint, client=client, record=record)


def _load_checkpoint(folder: Path, device: SearchDevice | None) -> Checkpoint:
    try:
        return load_checkpoint(folder, torch.device("cpu") if device is None else device.device)
    except CheckpointError as error:
        raise IndexCorruptError(folder, str(error)) from error
