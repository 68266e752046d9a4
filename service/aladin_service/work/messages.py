"""The messages between the service and a worker process, and how they are sent.

The service numbers the batches and jobs that it sends to a worker. The worker reports when it
starts and when it finishes each of them.

A message is sent as its length and a pickle. Both ends are processes of this program, and no other
process has access to the socket.
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
from aladin_service.work.crashing_generations import Attempt
from aladin_service.work.health import LiveState
from aladin_service.work.worker import Work

_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Run:
    """To the worker: do this."""

    number: int
    work: Work


@dataclass(frozen=True)
class Unwanted:
    """To the worker: no client waits any more for a job, or for one query of a batch."""

    number: int
    place: int


@dataclass(frozen=True)
class RetryCrashing:
    """To the worker: generations that crashed other workers may be opened again."""


@dataclass(frozen=True)
class Attempting:
    """From the worker: the generation it is opening, which may crash it; None when it is done."""

    attempt: Attempt | None


@dataclass(frozen=True)
class Status:
    """From the worker: it is alive. Sent at readiness, at every change and at regular intervals.

    Attributes:
        live: State of the worker's index.
        engine_calls: Calls of the vector database that ended since the last status.
    """

    live: LiveState
    engine_calls: tuple[EngineCall, ...] = ()


@dataclass(frozen=True)
class Begun:
    """From the worker: it starts a batch or a job, which may crash it."""

    number: int


@dataclass(frozen=True)
class Done:
    """From the worker: the result of `Worker.do`, or the error of a job or of a whole batch."""

    number: int
    result: Any = None
    error: Exception | None = None


class UnforeseenError(Exception):
    """An unexpected error in a worker process; the message is its traceback."""


def pack(message: object) -> bytes:
    """Serialize a message."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


async def read_message(reader: asyncio.StreamReader) -> Any:
    """Read the next message; EOFError if the other end is closed, a cut message is lost."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        raise EOFError from None


class Wire:
    """A worker's end of the connection, which blocks; one thread reads, any number send."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._sending = threading.Lock()

    def send(self, *messages: object) -> None:
        """Send messages one right after the other; none if one cannot be pickled."""
        data = b"".join(map(pack, messages))
        with self._sending:
            self._socket.sendall(data)

    def receive(self) -> Any:
        """Wait for the next message; EOFError if the other end is closed."""
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
