"""The generations of an index that an engine keeps on other machines."""

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
from aladin_network.checkpoint import Checkpoint
from aladin_network.errors import EngineError, EngineUnavailableError, IndexNotReadyError

_LOG = logging.getLogger(__name__)

# A look that hangs is left to itself when the service ends.
_END_S = 2.0


class EngineSource:
    """An `IndexSource`: a thread looks at the engine, requests only see what it has found.

    While the engine is away nothing is asked of it but by that thread; when it is back, and a
    search on the live generation is answered, requests are let through again.
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
        """Ask nothing yet.

        Args:
            path: of the folder with the index's model.
            client: of the engine; closed with this.
            device: where the network goes; None: the processor.
            poll_s: between two looks.
            on_call: told of each call that is made for requests.
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
        """Look for the first time, then every so often on a thread of its own.

        Args:
            on_poll: called after each look but the first.

        Raises:
            EngineError: the engine refuses; it is looked at again all the same.
        """
        if self._thread is not None:
            return
        self._thread = threading.Thread(
            target=self._keep_polling, args=(on_poll,), name="engine-poll", daemon=True
        )
        try:
            self._poll()
        finally:
            self._thread.start()

    def published(self) -> int | None:
        """Return the live generation, as of the last look that was answered."""
        return self._live

    def live_number(self) -> int | None:
        """Return the live generation, as of the last look that was answered."""
        return self._live

    def unavailable(self) -> EngineUnavailableError | None:
        """Say why no call would be let through."""
        return self._circuit.refusal()

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> EngineIndex:
        """Open a generation and search it once; see `IndexSource.open`."""
        self._circuit.check()
        number = self._live if generation is None else generation
        if number is None or self._ends.is_set():
            raise IndexNotReadyError(f"{self.path}: nothing is live in {self._client.kind} yet")
        index = open_engine_index(
            self.path, self._guarded, checkpoint=checkpoint, device=self._device, generation=number
        )
        _search_once(self._guarded, index.manifest)
        self._opened = index.manifest
        return index

    def writer(self, model_id: str) -> EngineWriter:
        """Return what changes the index."""
        return EngineWriter(self.path, self._guarded, model_id)

    def close(self) -> None:
        """End the thread and close the connection."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(_END_S)
        self._client.close()

    def _keep_polling(self, on_poll: Callable[[], None]) -> None:
        while not self._ends.wait(self._poll_s):
            try:
                self._poll()
                if not self._ends.is_set():  # a look may end long after that
                    on_poll()
            except EngineError:
                pass  # the circuit has told it
            except Exception:
                # Whatever it is: nobody else would notice that the engine is back.
                _LOG.exception("a look at the engine failed")

    def _poll(self) -> None:
        """Find out whether the engine answers, and what is live.

        Raises:
            EngineError: it refuses.
        """
        try:
            self._client.check_health()
            live = self._client.live_generation()
            was_away, opened = self._circuit.is_open, self._opened
            # It may be up and not have loaded what is searched; a generation that is not the live
            # one any more may be gone.
            if was_away and opened is not None and opened.generation == live:
                _search_once(self._client, opened)
        except EngineUnavailableError as error:
            self._circuit.broken(error)
        except EngineError as error:
            self._circuit.broken(error)
            raise
        else:
            self._live = live
            # Not otherwise: searches may fail in a row while the engine greets in between.
            if was_away:
                self._circuit.close()


def _search_once(client: EngineClient, manifest: Manifest) -> None:
    """Search each side for its nearest item to some vector.

    Raises:
        EngineError: it cannot be searched.
    """
    for target in manifest.targets:
        entry = manifest.side(target)
        assert entry is not None  # it is one of the targets
        query: NDArray[np.float32] = np.zeros(entry.embedding_dim, dtype=np.float32)
        query[0] = 1.0
        client.search(
            EngineQuery(generation=manifest.generation, target=target, embedding=query, count=1)
        )
