"""Opens an index wherever it is kept: in its folder, or in an engine that the folder names."""

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
        device: where the network goes, and the searches of an index of files; None: the processor.
        generation: to open in the place of the live one.
        engine: how an engine is reached from here, if the index is in one; None: as its folder
            says.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexMismatchError: of another schema version, or built with another model.
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
    """Make a writer that adds items to the live generation of an index, and removes items.

    Nothing is opened or asked before its first call.

    Args:
        path: the index's folder.
        model_id: of the model that encodes what is added.
        engine: see `open_backend`.

    Raises:
        ConfigError: the engine's package is not installed.
    """
    location = location_of(path)
    if location is None:
        return ChangesWriter(path, model_id)
    from aladin_index.engines.writer import EngineWriter

    return EngineWriter(path, connect(location, engine), model_id)
