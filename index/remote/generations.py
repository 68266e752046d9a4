"""The generations of an index in an engine, as those see them who read and change them."""

from __future__ import annotations

from pathlib import Path

from aladin.errors import IndexNotReadyError
from index.remote.client import EngineClient
from index.remote.record import RemoteRecord, is_whole


def require_live(client: EngineClient, path: Path) -> int:
    """Return the live generation.

    Args:
        client: of the engine.
        path: of the folder that stands for the index.

    Raises:
        IndexNotReadyError: there is none yet.
        EngineUnavailableError: the engine does not answer.
    """
    generation = client.live_generation()
    if generation is None:
        raise IndexNotReadyError(f"{path}: nothing was pushed to {client.kind} yet")
    return generation


def read_generation(client: EngineClient, generation: int) -> RemoteRecord:
    """Read the record of a generation.

    Raises:
        IndexNotReadyError: there is no such generation, or not all of it yet.
        IndexMismatchError: of another schema version.
        IndexCorruptError: the record is damaged.
        EngineUnavailableError: the engine does not answer.
    """
    pieces = client.read_record(generation)
    where = f"{client.kind}: generation {generation}"
    if pieces is None or not is_whole(pieces):
        raise IndexNotReadyError(f"{where} is not there, or not whole")
    return RemoteRecord.read(pieces, where)
