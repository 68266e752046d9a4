"""From where an index is to Qdrant: a server, or a folder that this process reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aladin.errors import ConfigError
from index.remote.connect import EngineOptions
from index.remote.location import EngineLocation
from index.remote.qdrant.client import QdrantEngine
from index.remote.qdrant.open_folders import OPEN_FOLDERS
from index.remote.qdrant.point_store import PointStore
from index.remote.qdrant.settings import QdrantSettings


def connect_qdrant(location: EngineLocation, options: EngineOptions) -> QdrantEngine:
    """Make a client of a server, or of the local mode where the address is a folder's.

    Raises:
        ConfigError: the package is not installed, or Qdrant has no such option.
        EngineUnavailableError: another process has the folder open.
    """
    settings = QdrantSettings.of(location)
    try:
        from index.remote.qdrant.local_store import open_local_store
        from index.remote.qdrant.server_store import open_server_store
    except ModuleNotFoundError as error:
        raise _missing(error, "qdrant") from error
    if urlsplit(location.url).scheme == "file":
        return _in_folder(
            location, settings, lambda path: open_local_store(location.engine, path, settings)
        )
    store = open_server_store(location.engine, location.url, options, settings)
    return QdrantEngine(location.engine, store, location.name, settings.tokens, store.close)


def connect_edge(location: EngineLocation) -> QdrantEngine:
    """Make a client of Qdrant Edge in this process.

    Raises:
        ConfigError: the package is not installed, or it has no such option.
        EngineUnavailableError: another process has the folder open.
    """
    settings = QdrantSettings.of(location)
    try:
        from index.remote.qdrant.edge_store import EdgeStore
    except ModuleNotFoundError as error:
        raise _missing(error, "qdrant-edge") from error
    return _in_folder(location, settings, lambda path: EdgeStore(location.engine, path, settings))


def _in_folder(
    location: EngineLocation, settings: QdrantSettings, make: Callable[[Path], PointStore]
) -> QdrantEngine:
    folder = Path(unquote(urlsplit(location.url).path))
    store = OPEN_FOLDERS.open(location.engine, folder, make)
    return QdrantEngine(
        location.engine,
        store,
        location.name,
        settings.tokens,
        lambda: OPEN_FOLDERS.close(folder),
    )


def _missing(error: ModuleNotFoundError, extra: str) -> ConfigError:
    return ConfigError(
        f"this engine needs the package {error.name}: pip install 'aladin-search[{extra}]'"
    )
