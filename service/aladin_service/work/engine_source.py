"""The generations of an index that is stored in a vector database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.client import EngineClient, EngineQuery
from aladin_index.engines.engine_index import EngineIndex, open_engine_index
from aladin_index.engines.guard import Circuit, OnCall, guarded
from aladin_index.engines.writer import EngineWriter
from aladin_index.format.manifest import Manifest
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import EngineError, EngineUnavailableError, IndexNotReadyError

_LOG = logging.getLogger(__name__)

# When the service stops, a poll that hangs is abandoned after this time.
_END_S = 2.0


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
        """Create a source without contacting the vector database.

        Args:
            path: Folder with the index's model.
            client: Client of the engine; closed with this object.
            device: Device of the network, or None for the CPU.
            poll_s: Seconds between two polls.
            on_call: Receives the outcome of each call made for requests.
        """
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
        """Poll once, then regularly on a thread of its own.

        Args:
            on_poll: Called after each poll but the first.

        Raises:
            EngineError: If the engine refuses the first poll; polling continues all the same.
        """
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
        """Return the live generation, as of the last successful poll."""
        return self._live

    def live_number(self) -> int | None:
        """Return the live generation, as of the last successful poll."""
        return self._live

    def unavailable(self) -> EngineUnavailableError | None:
        """Return why calls are rejected, or None if they are permitted."""
        return self._circuit.refusal()

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> EngineIndex:
        """Open a generation and search it once; see `IndexSource.open`."""
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
        """Return a writer that changes the index."""
        return EngineWriter(self.path, self._guarded, model_id)

    def close(self) -> None:
        """Stop the thread and close the connection."""
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
        """Find out whether the vector database responds, and which generation is live.

        Raises:
            EngineError: If the engine refuses a call.
        """
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
    """Search the images and the texts for the item nearest to some vector.

    Raises:
        EngineError: If the engine cannot search them.
    """
    for target in manifest.targets:
        entry = manifest.collection(target)
        assert entry is not None  # it is one of the targets
        query: NDArray[np.float32] = np.zeros(entry.embedding_dim, dtype=np.float32)
        query[0] = 1.0
        client.search(
            EngineQuery(generation=manifest.generation, target=target, embedding=query, count=1)
        )
