"""Sources of an index's generations: index files, or a vector database."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aladin_index.changes.writer import ChangesWriter, ItemWriter
from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.client import EngineClient, EngineOptions
from aladin_index.engines.guard import OnCall, ignore_call
from aladin_index.format.layout import (
    CURRENT,
    ENGINE_FILE,
    EngineLocation,
    live_generation,
    location_of,
)
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.verify import probe_index
from aladin_index.open import connect
from aladin_index.search.collection import SearchBackend
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import AladinError, EngineUnavailableError, IndexNotReadyError
from aladin_service.work.engine_source import EngineSource


class IndexSource(Protocol):
    """The generations of one index folder; thread-safe.

    Only `start`, `open` and the writer may block.
    """

    @property
    def path(self) -> Path:
        """Index folder."""
        ...

    @property
    def polls(self) -> bool:
        """Whether a background thread looks for new generations, so that requests need not."""
        ...

    def start(self, on_poll: Callable[[], None]) -> None:
        """Start to poll, unless that has been done.

        Args:
            on_poll: Called after each poll, if the source polls.

        Raises:
            EngineError: If the vector database rejects the call; polling goes on if it does not
                respond.
        """
        ...

    def poll(self) -> None:
        """Look for a new generation at once, if the source polls."""
        ...

    def published(self) -> Hashable | None:
        """Return an identifier of the published generation as last seen, or None if none is."""
        ...

    def live_number(self) -> int | None:
        """Return the number of the published generation, or None if it is unknown."""
        ...

    def unavailable(self) -> EngineUnavailableError | None:
        """Return the error with which searches fail at present, or None if they can run."""
        ...

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> SearchBackend:
        """Open the live generation and check that it can be searched.

        Args:
            checkpoint: Loaded checkpoint to use in place of the copy in the folder, or None.
            generation: Generation to open in place of the live one, or None.

        Raises:
            IndexNotReadyError: If no generation is published.
            IndexMismatchError: If the generation has another schema version or another model.
            IndexCorruptError: If the generation is damaged.
            EngineUnavailableError: If the vector database does not respond.
        """
        ...

    def writer(self, model_id: str) -> ItemWriter:
        """Return the object that adds and removes items, without opening anything.

        Args:
            model_id: Model that encodes added items.
        """
        ...

    def close(self) -> None:
        """Stop polling and release all resources."""
        ...


class FilesSource:
    """An `IndexSource` of files: the live generation is the one that CURRENT names.

    Each request looks it up, which costs next to nothing, so that every request finds what was
    published before it arrived.
    """

    polls = False

    def __init__(self, path: Path, device: SearchDevice | None, *, warm: bool) -> None:
        """Create a source without opening anything.

        Args:
            path: Index folder; may be empty or missing.
            device: Device of the network and of the searches, or None for the CPU.
            warm: Whether to read the files of each generation into memory when it is opened.
        """
        self.path = path
        self._device = device
        self._warm = warm

    def start(self, on_poll: Callable[[], None]) -> None:
        """Do nothing; requests look for new generations."""

    def poll(self) -> None:
        """Do nothing; requests look for new generations."""

    def published(self) -> tuple[int, int, int] | None:
        """Return an identifier of CURRENT, which is replaced rather than written to.

        The device and the time of the last change tell apart a folder that was replaced by a copy,
        whose CURRENT may have the inode number and the modification time of the removed one.
        """
        try:
            state = (self.path / CURRENT).stat()
        except OSError:
            return None
        return state.st_dev, state.st_ino, state.st_ctime_ns

    def live_number(self) -> int | None:
        """Read the number of the live generation."""
        try:
            return live_generation(self.path)
        except AladinError:
            return None

    def unavailable(self) -> None:
        """Return None: files are always available."""

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> SearchIndex:
        """Open a generation; see `IndexSource.open`."""
        index = open_index(
            self.path, checkpoint=checkpoint, device=self._device, generation=generation
        )
        try:
            probe_index(index)
        except BaseException:
            index.close()
            raise
        if self._warm:
            index.warm()
        return index

    def writer(self, model_id: str) -> ChangesWriter:
        """Return the object that changes the index."""
        return ChangesWriter(self.path, model_id)

    def close(self) -> None:
        """Do nothing; whoever opened an index closes it."""


@dataclass(frozen=True, kw_only=True)
class EngineAccess:
    """How a service connects to the vector database of its index.

    Attributes:
        options: Connection options of this machine.
        poll_s: Seconds between two polls.
        on_call: Called after each call, on the calling thread.
        connect: Creates the client.
    """

    options: EngineOptions = field(default_factory=EngineOptions)
    poll_s: float = 1.0
    on_call: OnCall = ignore_call
    connect: Callable[[EngineLocation, EngineOptions], EngineClient] = connect


def holds_index(path: Path) -> bool:
    """Return whether a folder contains an index, in files or in a vector database."""
    return (path / CURRENT).exists() or (path / ENGINE_FILE).exists()


def find_source(
    path: Path, access: EngineAccess, device: SearchDevice | None, *, warm: bool
) -> IndexSource:
    """Return the source of an index's generations without any call of a vector database.

    Args:
        path: Index folder.
        access: Access to the vector database, if the index is stored in one.
        device: Device of the network and of the searches, or None for the CPU.
        warm: Whether to read the files of each generation into memory when it is opened.

    Raises:
        IndexNotReadyError: If the folder contains no index.
        SearchIndexError: If the location of the vector database cannot be read.
        ConfigError: If the client package of the vector database is not installed.
    """
    location = location_of(path)
    if location is not None:
        client = access.connect(location, access.options)
        return EngineSource(path, client, device, poll_s=access.poll_s, on_call=access.on_call)
    if not holds_index(path):
        raise IndexNotReadyError(f"{path}: no index here, it has no {CURRENT} and no {ENGINE_FILE}")
    return FilesSource(path, device, warm=warm)
