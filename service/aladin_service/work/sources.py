"""Where the generations come from that a service answers from: an index's files, or an engine.

The generations of an index of files.

What an index folder is: an index of files, one in an engine, or nothing yet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aladin_index.changes.writer import ChangesWriter, ItemWriter
from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.client import EngineClient, EngineOptions
from aladin_index.engines.connect import connect
from aladin_index.engines.guard import OnCall, ignore_call
from aladin_index.format.engine_location import ENGINE_FILE, EngineLocation, location_of
from aladin_index.format.layout import CURRENT, live_generation
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.verify import probe_index
from aladin_index.search.backend import SearchBackend
from aladin_network.checkpoint import Checkpoint
from aladin_network.errors import AladinError, EngineUnavailableError, IndexNotReadyError
from aladin_service.work.engine_source import EngineSource


class IndexSource(Protocol):
    """An index folder's generations; safe to use from any number of threads.

    Only `start`, `open` and the writer may take their time.
    """

    @property
    def path(self) -> Path:
        """The index's folder."""
        ...

    @property
    def looks_itself(self) -> bool:
        """Whether a thread of its own looks what is published, so that no request has to."""
        ...

    def start(self, on_look: Callable[[], None]) -> None:
        """Begin to look, unless it has begun.

        Args:
            on_look: called after each look by whoever looks by itself.

        Raises:
            EngineError: the engine refuses; one that does not answer is looked at again.
        """
        ...

    def published(self) -> Hashable | None:
        """Return what tells one publication from another, as far as is known; None: none yet."""
        ...

    def live_number(self) -> int | None:
        """Return the number of the published generation; None where it is not to be known."""
        ...

    def away(self) -> EngineUnavailableError | None:
        """Say why nothing can be searched now, of what is open, too; None: it can."""
        ...

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> SearchBackend:
        """Open the live generation and try it.

        Args:
            checkpoint: already loaded, to be used in place of the copy in the folder.
            generation: to open in the place of the live one.

        Raises:
            IndexNotReadyError: nothing was published yet.
            IndexMismatchError: of another schema version, or built with another model.
            IndexCorruptError: it is unsound.
            EngineUnavailableError: the engine does not answer.
        """
        ...

    def writer(self, model_id: str) -> ItemWriter:
        """Return what adds and removes items; opens nothing yet.

        Args:
            model_id: of the model that encodes what is added.
        """
        ...

    def close(self) -> None:
        """Look no more, and let go of what it holds."""
        ...


class FilesSource:
    """An `IndexSource`: what CURRENT names, looked up by each request, for that costs next to none.

    So whatever was published is there for all requests that come after.
    """

    looks_itself = False

    def __init__(self, path: Path, device: SearchDevice | None, *, warm: bool) -> None:
        """Open nothing yet.

        Args:
            path: of the index; it may be empty or missing.
            device: where the network and the searches go; None: the processor.
            warm: have each generation's files read into memory when it is opened.
        """
        self.path = path
        self._device = device
        self._warm = warm

    def start(self, on_look: Callable[[], None]) -> None:
        """Do nothing: others look."""

    def published(self) -> tuple[int, int, int] | None:
        """Return what tells one state of CURRENT from another: it is replaced, never written to.

        Nor is it the same where the whole folder was replaced by a copy, whose file may have the
        number and the time of modification of the one that was removed.
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

    def away(self) -> None:
        """Return None: files are always here."""

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
        """Return what changes the index."""
        return ChangesWriter(self.path, model_id)

    def close(self) -> None:
        """Do nothing: what was opened is others' to close."""


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
    on_call: OnCall = ignore_call
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
