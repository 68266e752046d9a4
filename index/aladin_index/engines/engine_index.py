"""Index in a vector database: backend of a searcher, and facts about its content."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.engine_collection import EngineCollection
from aladin_index.engines.milvus import EngineClient, read_generation, require_live
from aladin_index.engines.record import GenerationRecord
from aladin_index.format.layout import EngineLocation
from aladin_index.format.manifest import Manifest, check_lengths
from aladin_index.format.models import model_folder
from aladin_index.generations.info import LocalFacts, describe_manifest
from aladin_index.generations.reader import load_model
from aladin_index.items.filters import Filter
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import (
    IndexMismatchError,
    NoSuchTargetError,
)
from aladin_network.types import Target


@dataclass(frozen=True, kw_only=True)
class EngineIndex:
    """One generation in a vector database; a `SearchBackend`.

    Attributes:
        path: Folder with the location of the index and its model.
        checkpoint: Model that the index was built with.
        client: Client of the vector database; closed together with this object.
        record: Record of the generation.
    """

    path: Path
    checkpoint: Checkpoint
    client: EngineClient
    record: GenerationRecord

    @property
    def manifest(self) -> Manifest:
        """Manifest of the generation, as it was pushed."""
        return self.record.manifest

    @property
    def generation(self) -> int:
        """Number of the generation."""
        return self.manifest.generation

    @property
    def place(self) -> None:
        """None, because the vector database has no files that a copy could replace."""
        return

    def collection(self, target: Target, filter: Filter | None = None) -> EngineCollection:
        """Return one collection for one search; no request is sent yet."""
        entry = self.manifest.collection(target)
        if entry is None:
            raise NoSuchTargetError(target, " and ".join(self.manifest.targets))
        codec = self.record.codecs[target]
        return EngineCollection(self.client, self.generation, target, entry, codec, filter)

    def check_health(self) -> None:
        """Check that the vector database responds."""
        self.client.check_health()

    def warm(self) -> None:
        """Do nothing: what searches read is in the memory of the vector database."""

    def close(self) -> None:
        """Close the client; no search may be running or follow."""
        self.client.close()

    def __enter__(self) -> EngineIndex:
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


def open_engine_index(
    path: Path,
    client: EngineClient,
    *,
    checkpoint: Checkpoint | None = None,
    device: SearchDevice | None = None,
    generation: int | None = None,
) -> EngineIndex:
    """Open the live generation of an index in a vector database.

    Args:
        path: Folder with the model.
        client: Client of the vector database; closed with the index, and if this function raises.
        checkpoint: Loaded checkpoint to use instead of the copy in the folder.
        device: Device of the network, or None for the CPU.
        generation: Generation to open instead of the live one.

    Raises:
        IndexNotReadyError: If nothing is live, or there is no such generation.
        IndexMismatchError: If the schema version differs, or the index was pushed with another
            model.
        IndexCorruptError: If the record is damaged or a file of the model is missing.
    """
    try:
        if generation is None:
            generation = require_live(client, path)
        record = read_generation(client, generation)
        model = record.manifest.model
        if checkpoint is None:
            folder = model_folder(path, model.id)
            check_lengths(folder, model.files)
            checkpoint = load_model(folder, "cpu" if device is None else device.device)
        if checkpoint.model_id != model.id:
            raise IndexMismatchError(f"{path}: model", model.id, checkpoint.model_id)
    except BaseException:
        client.close()
        raise
    return EngineIndex(path=path, checkpoint=checkpoint, client=client, record=record)


def describe_engine_index(path: Path, location: EngineLocation, client: EngineClient) -> LocalFacts:
    """Query a vector database for the facts about an index; the client is not closed.

    Raises:
        IndexNotReadyError: If nothing is live.
        IndexMismatchError: If the schema version differs.
        IndexCorruptError: If the record of the index is damaged.
    """
    generation = require_live(client, path)
    record = read_generation(client, generation)
    counts: dict[Target, int] = {
        target: client.count(generation, target) for target in record.manifest.targets
    }
    return replace(
        describe_manifest(path, record.manifest, counts, in_engine=True),
        engine=location,
        generations=client.generations(),
        changed=record.changed,
    )
