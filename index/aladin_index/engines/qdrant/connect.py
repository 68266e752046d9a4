"""Creates the client of Qdrant for a location: a server, or a folder read by this process.

Qdrant permits one client at a time per folder. A service has one client for searches and one for
writes, possibly of the same folder: they share its store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aladin_index.engines.client import EngineOptions
from aladin_index.engines.qdrant.client import QdrantEngine
from aladin_index.engines.qdrant.store import PointStore, QdrantSettings
from aladin_index.format.layout import EngineLocation
from aladin_network.errors import ConfigError, EngineError


class OpenFolders:
    """The open stores of folders, each with the number of its users."""

    def __init__(self) -> None:
        """Start without stores."""
        self._lock = threading.Lock()
        self._open: dict[Path, _OpenFolder] = {}

    def open(self, engine: str, path: Path, make: Callable[[Path], PointStore]) -> PointStore:
        """Return the store of a folder; it stays open until every user has closed it.

        Args:
            engine: Vector database that stores the folder.
            path: Path of the folder; it need not exist.
            make: Function that opens the store.

        Raises:
            EngineError: If another kind of vector database has it open.
        """
        path = path.resolve()
        with self._lock:
            folder = self._open.get(path)
            if folder is None:
                folder = self._open[path] = _OpenFolder(engine, make(path))
            elif folder.engine != engine:
                raise EngineError(engine, f"{path}: is open as a folder of {folder.engine}")
            folder.users += 1
            return folder.store

    def close(self, path: Path) -> None:
        """Close a store returned by `open`; to be called once per `open`."""
        path = path.resolve()
        with self._lock:
            folder = self._open[path]
            folder.users -= 1
            if folder.users == 0:
                del self._open[path]
                folder.store.close()


@dataclass
class _OpenFolder:
    engine: str
    store: PointStore
    users: int = 0


# Stores of this process: the folders are locked against other processes.
OPEN_FOLDERS = OpenFolders()


def connect_qdrant(location: EngineLocation, options: EngineOptions) -> QdrantEngine:
    """Create a client of a server, or of the local mode if the address is a folder.

    Raises:
        ConfigError: If the package is not installed, or Qdrant has no such option.
        EngineUnavailableError: If another process has the folder open.
    """
    settings = QdrantSettings.of(location)
    try:
        from aladin_index.engines.qdrant.connections import open_local_store, open_server_store
    except ModuleNotFoundError as error:
        raise _missing(error, "qdrant") from error
    if urlsplit(location.url).scheme == "file":
        return _in_folder(
            location, settings, lambda path: open_local_store(location.engine, path, settings)
        )
    store = open_server_store(location.engine, location.url, options, settings)
    return QdrantEngine(location.engine, store, location.name, settings.tokens, store.close)


def connect_edge(location: EngineLocation) -> QdrantEngine:
    """Create a client of Qdrant Edge in this process.

    Raises:
        ConfigError: If the package is not installed or has no such option.
        EngineUnavailableError: If another process has the folder open.
    """
    settings = QdrantSettings.of(location)
    try:
        from aladin_index.engines.qdrant.edge_store import EdgeStore
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
