"""Opens an index for searches or changes, in its folder or in a vector database."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from aladin_index.changes.writer import ChangesWriter, ItemWriter
from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.milvus import EngineClient, EngineOptions
from aladin_index.format.layout import (
    ENGINE_FILE,
    MODEL,
    MODELS,
    EngineLocation,
    check_url,
    location_of,
)
from aladin_index.format.manifest import live_model_folder, model_folder
from aladin_index.generations.reader import open_index
from aladin_index.search.collection import SearchBackend
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import ConfigError


def connect(location: EngineLocation, options: EngineOptions | None = None) -> EngineClient:
    """Create a client; the vector database need not respond yet.

    Args:
        location: Where the index is.
        options: How this machine reaches the engine, or None for the defaults.

    Raises:
        ConfigError: If pymilvus is not installed, Milvus has no such option, or a token would be
            sent to an address that only the index folder, possibly from elsewhere, names.
    """
    options = options or EngineOptions()
    if options.url is not None:
        check_url(options.url)
        location = replace(location, url=options.url)
    elif options.token is not None:
        raise ConfigError(
            f"ALADIN_ENGINE_TOKEN is not sent to an address that only {ENGINE_FILE} names: set "
            f"ALADIN_ENGINE_URL={location.url} if that is your Milvus, or unset the token"
        )
    return EngineClient(location, options)


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
        path: Folder of the index.
        checkpoint: Loaded checkpoint to use instead of the copy in the folder.
        device: Device of the network, and of the searches of a file index, or None for the CPU.
        generation: Generation to open instead of the live one.
        engine: Connection to the vector database, if the index is in one, or None for the settings
            in the folder.

    Raises:
        IndexNotReadyError: If no generation was published yet.
        IndexMismatchError: If the index has another schema version, or was built with another
            model.
        IndexCorruptError: If a file, or the content of the vector database, is not what was
            written.
        ConfigError: If the package of the vector database is not installed.
        EngineUnavailableError: If the vector database does not respond.
    """
    location = location_of(path)
    if location is None:
        return open_index(path, checkpoint=checkpoint, device=device, generation=generation)
    from aladin_index.engines.engine_index import open_engine_index

    client = connect(location, engine)
    return open_engine_index(
        path, client, checkpoint=checkpoint, device=device, generation=generation
    )


def live_model(path: Path, engine: EngineOptions | None = None) -> Path:
    """Return the folder of the checkpoint that the live generation of an index is of.

    The vector database is asked only if the folder has models of upgrades.

    Args:
        path: Folder of the index.
        engine: See `open_backend`.

    Raises:
        IndexNotReadyError: If no generation was published yet.
        IndexCorruptError: If CURRENT or a manifest is damaged.
        EngineUnavailableError: If the vector database does not respond.
    """
    location = location_of(path)
    if location is None:
        return live_model_folder(path)
    if not (path / MODELS).is_dir():
        return path / MODEL
    from aladin_index.engines.milvus import read_generation, require_live

    with closing(connect(location, engine)) as client:
        record = read_generation(client, require_live(client, path))
    return model_folder(path, record.manifest.model.id)


def open_writer(path: Path, model_id: str, *, engine: EngineOptions | None = None) -> ItemWriter:
    """Make a writer that adds items to the live generation of an index and removes items.

    Nothing is opened or asked before its first call.

    Args:
        path: Folder of the index.
        model_id: Id of the model that encodes the added items.
        engine: See `open_backend`.

    Raises:
        ConfigError: If the package of the vector database is not installed.
    """
    location = location_of(path)
    if location is None:
        return ChangesWriter(path, model_id)
    from aladin_index.engines.writer import EngineWriter

    return EngineWriter(path, connect(location, engine), model_id)
