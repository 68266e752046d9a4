"""Folders that this process has open: Qdrant lets one client at a time into each.

A service has a client to search with and one to write with, and both may be of one folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aladin.errors import EngineError
from index.remote.qdrant.point_store import PointStore


class OpenFolders:
    """The stores of folders, each with the number of those who use it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._open: dict[Path, _OpenFolder] = {}

    def open(self, engine: str, path: Path, make: Callable[[Path], PointStore]) -> PointStore:
        """Return the store of a folder; it is open until as many have closed it as opened it.

        Args:
            engine: that is to keep it.
            path: of the folder; it need not be there.
            make: opens it.

        Raises:
            EngineError: another engine has it open.
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
        """Close what `open` returned, once for each time."""
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


# Of this process: the folders are locked against others.
OPEN_FOLDERS = OpenFolders()
