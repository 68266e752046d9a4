"""Messages between the service and a worker process: a length, then a pickle.

Both ends are this program's own processes, and nobody else has the socket.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import threading
from typing import Any

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
