"""Limits on the body of a request: its bytes, alone and with those of others, and its time."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.content_length import declared_length
from service.http.errors import BodiesTooLargeError, BodyTimeoutError, BodyTooLargeError

# A client that still sends when the connection closes may never see the answer, so the rest of a
# body that is too large is read and thrown away: at most this long, and this many limits' worth.
_DRAIN_S = 5.0
_DRAIN_LIMITS = 8


class BodyLimit:
    """Stops reading a request's body as soon as it is over a limit, declared or not."""

    def __init__(
        self, app: ASGIApp, max_bytes: int, max_bytes_in_all: int, timeout_s: float
    ) -> None:
        """Wrap an application.

        Args:
            app: whose requests may have bodies.
            max_bytes: of a body.
            max_bytes_in_all: of the bodies of all requests that are not answered yet; what came
                counts, and not what was declared, which costs whoever declares it nothing. A body
                that is alone is read whatever this is.
            timeout_s: for all of it to come, from when it is first asked for. A least rate would
                do as well, but nobody could tell from it how long a slow client can stay.
        """
        self._app = app
        self._max_bytes = max_bytes
        self._max_bytes_in_all = max_bytes_in_all
        self._timeout_s = timeout_s
        self._held = 0  # bytes of all bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        over = (declared_length(scope) or 0) > self._max_bytes
        received = 0
        deadline_s: float | None = None
        whole = False

        async def limited_receive() -> Message:
            nonlocal received, deadline_s, whole
            if whole:
                return await receive()  # waits for the client to hang up, as long as it stays
            if over:
                # A client that asked before sending has sent nothing yet.
                if headers.get("expect", "").lower() != "100-continue":
                    await self._drain(receive)
                raise BodyTooLargeError(self._max_bytes)
            if deadline_s is None:
                deadline_s = asyncio.get_running_loop().time() + self._timeout_s
            try:
                async with asyncio.timeout_at(deadline_s):
                    message = await receive()
            except TimeoutError:
                raise BodyTimeoutError(self._timeout_s) from None
            whole = not message.get("more_body", False)
            length = len(message.get("body", b""))
            received += length
            self._held += length
            if self._held > max(received, self._max_bytes_in_all):
                raise BodiesTooLargeError
            if received > self._max_bytes:
                if not whole:
                    await self._drain(receive)
                raise BodyTooLargeError(self._max_bytes)
            return message

        try:
            await self._app(scope, limited_receive, send)
        finally:
            self._held -= received

    async def _drain(self, receive: Receive) -> None:
        left = _DRAIN_LIMITS * self._max_bytes
        try:
            async with asyncio.timeout(_DRAIN_S):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            return
