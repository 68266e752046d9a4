"""What the service and a worker process say to each other.

The service numbers the batches and the jobs that it sends to a worker. The worker says of each
when it begins with it and when it is done; of a batch also what became of its queries, some at a
time.

Messages between the service and a worker process: a length, then a pickle.

Both ends are this program's own processes, and nobody else has the socket.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Any

from aladin_index.engines.guard import EngineCall
from aladin_service.search.job import Answered, SearchJob
from aladin_service.work.crashing_generations import Attempt
from aladin_service.work.live_index import LiveState
from aladin_service.work.worker import Job


@dataclass(frozen=True)
class RunBatch:
    """To the worker: answer these queries together."""

    number: int
    jobs: list[SearchJob]


@dataclass(frozen=True)
class RunJob:
    """To the worker: do this."""

    number: int
    job: Job[Any]


@dataclass(frozen=True)
class Unwanted:
    """To the worker: nobody waits any more for a job, or for one query of a batch."""

    number: int
    place: int


@dataclass(frozen=True)
class Forgiven:
    """To the worker: generations that have ended other workers may be opened again."""


@dataclass(frozen=True)
class Attempting:
    """From the worker: what it opens now, and might not survive; None: it is through with that."""

    attempt: Attempt | None


@dataclass(frozen=True)
class Status:
    """From the worker: it lives; sent when it can take work, on every change, and regularly.

    Attributes:
        live: what it answers from.
        engine_calls: that ended since the last one, if an engine keeps the index.
    """

    live: LiveState
    engine_calls: tuple[EngineCall, ...] = ()


@dataclass(frozen=True)
class Begun:
    """From the worker: it begins with a batch or a job, and might not survive it."""

    number: int


@dataclass(frozen=True)
class PlacesAnswered:
    """From the worker: what became of some queries of a batch, each with its place."""

    number: int
    answers: list[tuple[int, Answered | Exception]]


@dataclass(frozen=True)
class Done:
    """From the worker: it is through with a batch or a job.

    Attributes:
        number: of the batch or the job.
        result: of a job; of a batch, None.
        error: what the job raised; of a batch, why queries have no answer.
    """

    number: int
    result: Any = None
    error: Exception | None = None


class UnforeseenError(Exception):
    """A worker process met an error that nobody foresaw; the message is its traceback."""


_LENGTH = struct.Struct("!Q")


def pack(message: object) -> bytes:
    """Write a message as it goes over the wire.

    Raises:
        Exception: whatever pickle raises of what cannot be pickled.
    """
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


async def read_message(reader: asyncio.StreamReader) -> Any:
    """Read the next message on the service's side.

    Raises:
        EOFError: the other end is gone; a message that was cut short is lost.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        raise EOFError from None


class Wire:
    """A worker's end, which blocks; one thread reads, any number of threads send."""

    def __init__(self, connected: socket.socket) -> None:
        """Talk through a connected stream socket."""
        self._socket = connected
        self._sending = threading.Lock()

    def send(self, *messages: object) -> None:
        """Send messages whole, one right after the other.

        Raises:
            OSError: the other end is gone.
            Exception: whatever pickle raises of what cannot be pickled; nothing is sent then.
        """
        data = b"".join(map(pack, messages))
        with self._sending:
            self._socket.sendall(data)

    def receive(self) -> Any:
        """Wait for the next message.

        Raises:
            EOFError: the other end is gone.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return pickle.loads(self._read(length))

    def _read(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            try:
                count = self._socket.recv_into(view)
            except OSError:
                count = 0
            if count == 0:
                raise EOFError
            view = view[count:]
        return data
