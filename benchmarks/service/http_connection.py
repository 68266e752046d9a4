"""Minimal HTTP/1.1 keep-alive connections with as little overhead as possible in Python."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

_READ_BYTES = 2**18


class ConnectionFailedError(Exception):
    """No complete response was received."""


class Answer(NamedTuple):
    """Response to a request.

    Attributes:
        status: HTTP status.
        head: Status line and headers, as received.
        body: The complete body.
    """

    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """Return the value of a header, or None if it is missing.

        Args:
            name: Name in lower case.
        """
        for line in self.head.split(b"\r\n")[1:]:
            found, _, value = line.partition(b":")
            if found.lower() == name:
                return value.strip()
        return None


class Connection:
    """One request at a time; connects by itself, and reconnects if the service has closed."""

    def __init__(self, host: str, port: int) -> None:
        """Create a connection without connecting."""
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and read its response.

        Args:
            request: Request in the format sent over the wire.

        Raises:
            ConnectionFailedError: If nothing listens, or the connection broke before the response
                was complete.
        """
        if self._streams is not None:
            # The service may close an idle connection at the moment when the request is sent.
            try:
                return await self._send(request, *self._streams)
            except _NoResponseError:
                self.close()
        try:
            reader, writer = await asyncio.open_connection(
                self._host, self._port, limit=_READ_BYTES
            )
        except OSError as error:
            raise ConnectionFailedError(f"cannot connect: {error.strerror}") from None
        self._streams = reader, writer
        try:
            return await self._send(request, reader, writer)
        except _NoResponseError:
            self.close()
            raise ConnectionFailedError("closed before the answer") from None

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _send(
        self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Answer:
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise _NoResponseError from None
            self.close()
            raise ConnectionFailedError("broke inside of the headers") from None
        except OSError:
            raise _NoResponseError from None
        except BaseException:  # cancelled: what still arrives must not answer the next request
            self.close()
            raise
        try:
            answer = Answer(int(head[9:12]), head, b"")
            length = answer.header(b"content-length")
            if length is not None:
                body = await reader.readexactly(int(length))
            elif answer.status in (204, 304):
                body = b""
            else:
                raise ConnectionFailedError("expected a Content-Length, got none")
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise ConnectionFailedError("broke inside of the body") from None
        except BaseException:
            self.close()
            raise
        if answer.header(b"connection") == b"close":
            self.close()
        return answer._replace(body=body)


class ConnectionPool:
    """Connections to one service, as many as requests are pending at the same time."""

    def __init__(self, host: str, port: int) -> None:
        """Create a pool without connecting."""
        self._address = host, port
        self._idle: list[Connection] = []

    async def exchange(self, request: bytes) -> Answer:
        """Send a request over an idle connection, or over a new one; return the response.

        Raises:
            ConnectionFailedError: If no complete response was received.
        """
        # The most recently used connection is the least likely to have been closed meanwhile.
        connection = self._idle.pop() if self._idle else Connection(*self._address)
        try:
            return await connection.exchange(request)
        finally:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            connection.close()


class _NoResponseError(Exception):
    """The connection was closed before the response began."""
