"""What an index folder is: an index of files, one in an engine, or nothing yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aladin.errors import IndexNotReadyError
from index.devices.search_device import SearchDevice
from index.layout import CURRENT
from index.remote.client import EngineClient
from index.remote.connect import EngineOptions, connect
from index.remote.location import ENGINE_FILE, EngineLocation, location_of
from service.work.engine_source import EngineSource
from service.work.files_source import FilesSource
from service.work.guarded_engine import OnCall, pass_over
from service.work.index_source import IndexSource


@dataclass(frozen=True, kw_only=True)
class EngineAccess:
    """How a service reaches the engine of its index.

    Attributes:
        options: of this machine.
        poll_s: between two looks at it.
        on_call: told of each call, on the thread that made it.
        connect: makes its client.
    """

    options: EngineOptions = field(default_factory=EngineOptions)
    poll_s: float = 1.0
    on_call: OnCall = pass_over
    connect: Callable[[EngineLocation, EngineOptions], EngineClient] = connect


def holds_index(path: Path) -> bool:
    """Say whether a folder has become an index, of whichever kind."""
    return (path / CURRENT).exists() or (path / ENGINE_FILE).exists()


def find_source(
    path: Path, access: EngineAccess, device: SearchDevice | None, *, warm: bool
) -> IndexSource:
    """Return where the generations of an index come from; asks no engine yet.

    Args:
        path: of its folder.
        access: to the engine, if there is one.
        device: where the network and the searches go; None: the processor.
        warm: have each generation's files read into memory when it is opened.

    Raises:
        IndexNotReadyError: there is no index yet.
        SearchIndexError: where the engine is cannot be read.
        ConfigError: there is no package for this engine.
    """
    location = location_of(path)
    if location is not None:
        client = access.connect(location, access.options)
        return EngineSource(path, client, device, poll_s=access.poll_s, on_call=access.on_call)
    if not holds_index(path):
        raise IndexNotReadyError(f"{path}: no index here, it has no {CURRENT} and no {ENGINE_FILE}")
    return FilesSource(path, device, warm=warm)
