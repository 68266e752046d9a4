"""Opens an index, in its folder or in the vector database that the folder names."""

from __future__ import annotations

from pathlib import Path

from aladin_index.changes.writer import ChangesWriter, ItemWriter
from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.client import EngineOptions
from aladin_index.engines.connect import connect
from aladin_index.format.engine_location import location_of
from aladin_index.generations.reader import open_index
from aladin_index.search.backend import SearchBackend
from aladin_network.checkpoint import Checkpoint


def open_backend(
    path: Path,
    *,
    checkpoint: Checkpoint | None = None,
    device: SearchDevice | None = None,
    generation: int | None = None,
    engine: EngineOptions | None = None,
) -> SearchBackend:
    """Open the live generation of an index for searching.

    Args:
        path: the index's folder.
        checkpoint: already loaded, to be used in place of the copy in the folder.
        device: Device of the network, and of the searches of a file index, or None for the CPU.
        generation: Generation to open instead of the live one.
        engine: Connection to the vector database, if the index is in one, or None for the settings
            in the folder.

    Raises:
        IndexNotReadyError: If no generation was published yet.
        IndexMismatchError: If the index has another schema version, or was built with another
            model.
        IndexCorruptError: a file, or what the engine has, is not what was written.
        ConfigError: the engine's package is not installed.
        EngineUnavailableError: the engine does not answer.
    """
    location = location_of(path)
    if location is None:
        return open_index(path, checkpoint=checkpoint, device=device, generation=generation)
    from aladin_index.engines.engine_index import open_engine_index

    client = connect(location, engine)
    return open_engine_index(
        path, client, checkpoint=checkpoint, device=device, generation=generation
    )


def open_writer(path: Path, model_id: str, *, engine: EngineOptions | None = None) -> ItemWriter:
    """Make a writer that adds items to the live generation of an index and removes items.

    Nothing is opened or asked before its first call.

    Args:
        path: the index's folder.
        model_id: Id of the model that encodes the added items.
        engine: See `open_backend`.

    Raises:
        ConfigError: the engine's package is not installed.
    """
    location = location_of(path)
    if location is None:
        return ChangesWriter(path, model_id)
    from aladin_index.engines.writer import EngineWriter

    return EngineWriter(path, connect(location, engine), model_id)
