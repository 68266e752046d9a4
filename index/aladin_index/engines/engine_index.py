"""An index in an engine: the backend of a searcher, and facts about what the engine holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.client import EngineClient
from aladin_index.engines.engine_collection import EngineCollection
from aladin_index.engines.record import GenerationRecord, read_generation, require_live
from aladin_index.format.engine_location import EngineLocation
from aladin_index.format.layout import MODEL
from aladin_index.format.manifest import CollectionEntry, Manifest, check_lengths
from aladin_index.items.filters import Filter
from aladin_network.calibration.calibration import Calibration
from aladin_network.checkpoint import Checkpoint, load_checkpoint
from aladin_network.errors import (
    CheckpointError,
    IndexCorruptError,
    IndexMismatchError,
    NoSuchTargetError,
)
from aladin_network.types import Target


@dataclass(frozen=True, kw_only=True)
class EngineIndex:
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
    record: GenerationRecord

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

    def side(self, target: Target, filter: Filter | None = None) -> EngineCollection:
        """Return one side for one search; asks nothing of the engine yet.

        Raises:
            NoSuchTargetError: the index was built without it.
        """
        entry = self.manifest.side(target)
        if entry is None:
            raise NoSuchTargetError(target, " and ".join(self.manifest.targets))
        codec = self.record.codecs[target]
        return EngineCollection(self.client, self.generation, target, entry, codec, filter)

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
    return EngineIndex(path=path, checkpoint=checkpoint, client=client, record=record)


def _load_checkpoint(folder: Path, device: SearchDevice | None) -> Checkpoint:
    try:
        return load_checkpoint(folder, torch.device("cpu") if device is None else device.device)
    except CheckpointError as error:
        raise IndexCorruptError(folder, str(error)) from error


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """Facts about the live generation in an engine.

    Attributes:
        path: of the folder that stands for the index.
        location: of the index in the engine.
        generation: the live one.
        generations: all that are in the engine, oldest first, unfinished ones included.
        schema_version: of its manifest.
        model_id: sha256 of the weights that made it.
        metric: of the embeddings.
        default_candidates: of a search that does not say.
        sides: images, texts or both, as they were pushed.
        counts: items that each side has now.
        changed: whether items were added or removed since it was pushed.
        calibration: of the hits' probabilities; None: the index is not calibrated.
        fitted_photos_indexed: see `Manifest`.
    """

    path: Path
    location: EngineLocation
    generation: int
    generations: list[int]
    schema_version: int
    model_id: str
    metric: str
    default_candidates: int
    sides: dict[Target, CollectionEntry]
    counts: dict[Target, int]
    changed: bool
    calibration: Calibration | None
    fitted_photos_indexed: float | None


def describe_engine_index(path: Path, location: EngineLocation, client: EngineClient) -> EngineInfo:
    """Ask an engine what it has of an index.

    Args:
        path: of the folder that stands for the index.
        location: of the index in the engine.
        client: of that engine; not closed.

    Raises:
        IndexNotReadyError: nothing is live.
        IndexMismatchError: of another schema version.
        IndexCorruptError: its record is damaged.
        EngineUnavailableError: the engine does not answer.
    """
    generation = require_live(client, path)
    record = read_generation(client, generation)
    manifest = record.manifest
    return EngineInfo(
        path=path,
        location=location,
        generation=generation,
        generations=client.generations(),
        schema_version=manifest.schema_version,
        model_id=manifest.model.id,
        metric=manifest.metric,
        default_candidates=manifest.default_candidates,
        sides=manifest.sides,
        counts={target: client.count(generation, target) for target in manifest.targets},
        changed=record.changed,
        calibration=manifest.calibration,
        fitted_photos_indexed=manifest.fitted_photos_indexed,
    )
