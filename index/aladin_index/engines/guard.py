"""Whether an engine is asked at all: a circuit breaker.

An engine that is away makes each call wait until its time is up. A handful of them would hold all
threads, and with them the requests that need no engine. So after some calls in a row that were not
answered nobody is let through any more, and all are refused at once. Who closes the circuit again
is not a request but the one that looks at the engine regularly,
`aladin_service.work.engine_source`.

The pattern is that of M. Nygard, Release It! (2nd ed. 2018), ch. 5 "Circuit Breaker".

An engine's client as the service uses it: each call is timed, and refused while it is away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.engines.client import (
    CollectionSchema,
    EngineClient,
    EngineFirstStage,
    EngineItem,
    FoundItem,
)
from aladin_index.items.filters import Filter
from aladin_network.errors import EngineError, EngineUnavailableError
from aladin_network.types import Target

_LOG = logging.getLogger(__name__)

# One call that is not answered may be chance. Each has taken its time and all its tries, so to wait
# for a third would only hold one more thread.
_FAILURES = 2


class Circuit:
    """Counts calls that were not answered; safe to use from any number of threads."""

    def __init__(self) -> None:
        """Begin closed: calls are let through."""
        self._lock = threading.Lock()
        self._failures = 0
        self._open: EngineError | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are refused."""
        return self._open is not None

    def refusal(self) -> EngineUnavailableError | None:
        """Return what a call is refused with; None: it is let through."""
        why = self._open
        # A new one each time: an error that many threads raise would gather all their tracebacks.
        return None if why is None else EngineUnavailableError(why.engine, why.reason)

    def check(self) -> None:
        """Let a call through.

        Raises:
            EngineUnavailableError: the circuit is open.
        """
        refusal = self.refusal()
        if refusal is not None:
            raise refusal

    def failed(self, error: EngineError) -> None:
        """Note a call that was let through and not answered."""
        with self._lock:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._break(error)

    def broken(self, error: EngineError) -> None:
        """Let no call through from now on, whatever was counted."""
        with self._lock:
            self._break(error)

    def answered(self) -> None:
        """Note a call that was answered while the circuit was closed."""
        if self._failures and self._open is None:  # the lock is for those few alone
            with self._lock:
                self._failures = 0

    def close(self) -> None:
        """Let calls through again."""
        with self._lock:
            if self._open is not None:
                _LOG.warning("the engine answers again")
            self._failures, self._open = 0, None

    def _break(self, error: EngineError) -> None:
        if self._open is None:
            _LOG.error("the engine is away, searches are refused till it answers: %s", error)
        self._open = error


T = TypeVar("T")

# Why a call has no answer: the engine was not to be had, or did not want to.
CallError = Literal["unavailable", "refused"]


class EngineCall(NamedTuple):
    """What became of one call.

    Attributes:
        operation: its name, such as "search".
        seconds: that it took, further tries included.
        error: None: there was none.
    """

    operation: str
    seconds: float
    error: CallError | None


OnCall = Callable[[EngineCall], None]


def ignore_call(call: EngineCall) -> None:
    """Do nothing with a call."""


class GuardedEngine:
    """An `EngineClient` behind a `Circuit`; see there for what the methods do.

    Generations come and go while the connection stays, so to close this one leaves the connection
    to whoever made it.
    """

    def __init__(self, client: EngineClient, circuit: Circuit, on_call: OnCall) -> None:
        """Guard a client.

        Args:
            client: that is asked.
            circuit: told of each call's end.
            on_call: told of each call, on the thread that made it.
        """
        self._client = client
        self._circuit = circuit
        self._on_call = on_call

    @property
    def kind(self) -> str:
        """Which engine."""
        return self._client.kind

    @property
    def max_results(self) -> int:
        """The most that one search may ask for."""
        return self._client.max_results

    def generations(self) -> list[int]:
        """List the generations."""
        return self._ask("generations", self._client.generations)

    def live_generation(self) -> int | None:
        """Return the live generation."""
        return self._ask("live_generation", self._client.live_generation)

    def make_live(self, generation: int) -> None:
        """Make a generation live."""
        self._ask("make_live", lambda: self._client.make_live(generation))

    def drop_generation(self, generation: int) -> None:
        """Remove a generation."""
        self._ask("drop_generation", lambda: self._client.drop_generation(generation))

    def write_record(self, generation: int, record: Mapping[str, bytes]) -> None:
        """Keep a generation's record."""
        self._ask("write_record", lambda: self._client.write_record(generation, record))

    def read_record(self, generation: int) -> dict[str, bytes] | None:
        """Return a generation's record."""
        return self._ask("read_record", lambda: self._client.read_record(generation))

    def create_side(self, generation: int, target: Target, schema: CollectionSchema) -> None:
        """Make a collection."""
        self._ask("create_side", lambda: self._client.create_side(generation, target, schema))

    def open_side(self, generation: int, target: Target) -> None:
        """Make a collection searchable."""
        self._ask("open_side", lambda: self._client.open_side(generation, target))

    def upsert(self, generation: int, target: Target, entries: Sequence[EngineItem]) -> None:
        """Put items in."""
        self._ask("upsert", lambda: self._client.upsert(generation, target, entries))

    def delete(self, generation: int, target: Target, ids: Sequence[str]) -> None:
        """Remove items."""
        self._ask("delete", lambda: self._client.delete(generation, target, ids))

    def count(self, generation: int, target: Target) -> int:
        """Return the number of items."""
        return self._ask("count", lambda: self._client.count(generation, target))

    def first_stage(self, generation: int, target: Target) -> EngineFirstStage:
        """Say how a side is searched."""
        return self._ask("first_stage", lambda: self._client.first_stage(generation, target))

    def search(
        self,
        generation: int,
        target: Target,
        query: NDArray[np.float32],
        count: int,
        filter: Filter | None,
        *,
        width: int | None = None,
        with_tokens: bool = False,
        words: NDArray[np.float32] | None = None,
    ) -> list[FoundItem]:
        """Find the items that are nearest to a query."""
        return self._ask(
            "search",
            lambda: self._client.search(
                generation,
                target,
                query,
                count,
                filter,
                width=width,
                with_tokens=with_tokens,
                words=words,
            ),
        )

    def fetch(
        self,
        generation: int,
        target: Target,
        ids: Sequence[str],
        *,
        with_embeddings: bool = False,
        with_tokens: bool = False,
    ) -> list[EngineItem]:
        """Return the items with some ids."""
        return self._ask(
            "fetch",
            lambda: self._client.fetch(
                generation,
                target,
                ids,
                with_embeddings=with_embeddings,
                with_tokens=with_tokens,
            ),
        )

    def check_health(self) -> None:
        """Return where the engine answers."""
        self._ask("check_health", self._client.check_health)

    def close(self) -> None:
        """Do nothing: the connection is not this object's."""

    def _ask(self, operation: str, ask: Callable[[], T]) -> T:
        self._circuit.check()
        started_s = time.perf_counter()
        error: CallError | None = None
        try:
            answer = ask()
        except EngineUnavailableError as raised:
            error = "unavailable"
            self._circuit.failed(raised)
            raise
        except EngineError:
            error = "refused"
            self._circuit.answered()
            raise
        else:
            self._circuit.answered()
            return answer
        finally:
            self._on_call(EngineCall(operation, time.perf_counter() - started_s, error))
