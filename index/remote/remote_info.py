"""What an index in an engine holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aladin.calibration.calibration import Calibration
from index.manifest import SideEntry
from index.remote.client import EngineClient
from index.remote.generations import read_generation, require_live
from index.remote.location import EngineLocation
from index.settings import Target


@dataclass(frozen=True, kw_only=True)
class RemoteInfo:
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
    sides: dict[Target, SideEntry]
    counts: dict[Target, int]
    changed: bool
    calibration: Calibration | None
    fitted_photos_indexed: float | None


def describe_remote(path: Path, location: EngineLocation, client: EngineClient) -> RemoteInfo:
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
    return RemoteInfo(
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
