"""Sources of an index's generations: index files, or a vector database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aladin_index.changes.writer import ChangesWriter, ItemWriter
from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.engine_index import EngineIndex, open_engine_index
from aladin_index.engines.guard import Circuit, OnCall, guarded, ignore_call
from aladin_index.engines.milvus import EngineClient, EngineOptions, EngineQuery
from aladin_index.engines.writer import EngineWriter
from aladin_index.format.layout import (
    CURRENT,
    ENGINE_FILE,
    EngineLocation,
    live_generation,
    location_of,
)
from aladin_index.format.manifest import Manifest
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.verify import probe_index
from aladin_index.open import connect
from aladin_index.search.collection import SearchBackend
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import (
    AladinError,
    EngineError,
    EngineUnavailableError,
    IndexNotReadyError,
)

_LOG = logging.getLogger(__name__)

# When the service stops, a poll that hangs is abandoned after this time.
_END_S = 2.0


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
        """Start to poll, unless that has been done; `on_poll` is called after each later poll."""
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
        """Open the live generation, or another one, and check that it can be searched.

        A checkpoint that is given replaces the copy in the folder; another model than the
        generation's is an IndexMismatchError.
        """
        ...

    def writer(self, model_id: str) -> ItemWriter:
        """Return the object that adds and removes items, without opening anything."""
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
        try:
            return live_generation(self.path)
        except AladinError:
            return None

    def unavailable(self) -> None:
        """Return None: files are always available."""

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> SearchIndex:
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
        return ChangesWriter(self.path, model_id)

    def close(self) -> None:
        """Do nothing; whoever opened an index closes it."""


class EngineSource:
    """An `IndexSource`: a thread polls the database, and requests use its latest result.

    While the engine is unavailable, only that thread calls it. Once the engine responds again, and
    answers a search of the live generation, calls by requests are permitted again.
    """

    polls = True

    def __init__(
        self,
        path: Path,
        client: EngineClient,
        device: SearchDevice | None,
        *,
        poll_s: float,
        on_call: OnCall,
    ) -> None:
        self.path = path
        self._client = client
        self._device = device
        self._poll_s = poll_s
        self._circuit = Circuit()
        self._guarded = guarded(client, self._circuit, on_call)
        self._live: int | None = None
        self._opened: Manifest | None = None
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, on_poll: Callable[[], None]) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(
            target=self._keep_polling, args=(on_poll,), name="engine-poll", daemon=True
        )
        try:
            self.poll()
        finally:
            self._thread.start()

    def published(self) -> int | None:
        return self._live

    def live_number(self) -> int | None:
        return self._live

    def unavailable(self) -> EngineUnavailableError | None:
        return self._circuit.refusal()

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> EngineIndex:
        self._circuit.check()
        number = self._live if generation is None else generation
        if number is None or self._ends.is_set():
            raise IndexNotReadyError(f"{self.path}: no live generation in Milvus yet")
        index = open_engine_index(
            self.path, self._guarded, checkpoint=checkpoint, device=self._device, generation=number
        )
        _search_once(self._guarded, index.manifest)
        self._opened = index.manifest
        return index

    def writer(self, model_id: str) -> EngineWriter:
        return EngineWriter(self.path, self._guarded, model_id)

    def close(self) -> None:
        self._ends.set()
        if self._thread is not None:
            self._thread.join(_END_S)
        self._client.close()

    def _keep_polling(self, on_poll: Callable[[], None]) -> None:
        while not self._ends.wait(self._poll_s):
            try:
                self.poll()
                if not self._ends.is_set():  # a poll may end long after that
                    on_poll()
            except EngineError:
                pass  # logged by the circuit
            except Exception:
                # Whatever the error was, the thread continues: nothing else would notice a
                # recovery.
                _LOG.exception("polling the vector database failed")

    def poll(self) -> None:
        try:
            self._client.check_health()
            live = self._client.live_generation()
            was_unavailable, opened = self._circuit.is_open, self._opened
            # The database may respond before it has loaded the collections; a generation that is no
            # longer live may have been removed.
            if was_unavailable and opened is not None and opened.generation == live:
                _search_once(self._client, opened)
        except EngineUnavailableError as error:
            self._circuit.broken(error)
        except EngineError as error:
            self._circuit.broken(error)
            raise
        else:
            self._live = live
            # Only then: searches may fail in a row while health checks succeed in between.
            if was_unavailable:
                self._circuit.close()


def _search_once(client: EngineClient, manifest: Manifest) -> None:
    """Search the images and the texts for the item nearest to some vector."""
    for target in manifest.targets:
        entry = manifest.collection(target)
        assert entry is not None  # it is one of the targets
        query: NDArray[np.float32] = np.zeros(entry.embedding_dim, dtype=np.float32)
        query[0] = 1.0
        client.search(
            EngineQuery(generation=manifest.generation, target=target, embedding=query, count=1)
        )


@dataclass(frozen=True, kw_only=True)
class EngineAccess:
    """How a service connects to the vector database of its index, and who hears of each call."""

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
    """Return the source of an index's generations without any call of a vector database."""
    location = location_of(path)
    if location is not None:
        client = access.connect(location, access.options)
        return EngineSource(path, client, device, poll_s=access.poll_s, on_call=access.on_call)
    if not holds_index(path):
        raise IndexNotReadyError(f"{path}: no index here, it has no {CURRENT} and no {ENGINE_FILE}")
    return FilesSource(path, device, warm=warm)
