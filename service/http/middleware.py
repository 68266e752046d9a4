"""What holds for every request with a body: a limit on its bytes."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.errors import BodyTooLargeError

# A client that still sends when the connection closes may never see the answer, so the rest of a
# body that is too large is read and thrown away: at most this long, and this many limits' worth.
_DRAIN_S = 5.0
_DRAIN_LIMITS = 8


class BodyLimit:
    """Stops reading a request's body as soon as it is over the limit, declared or not."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        """Wrap an application whose requests may have bodies of `max_bytes`."""
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "")
        over = declared.isdecimal() and int(declared) > self._max_bytes
        received = 0

        async def limited_receive() -> Message:
            nonlocal received
            if over:
                # A client that asked before sending has sent nothing yet.
                if headers.get("expect", "").lower() != "100-continue":
                    await self._drain(receive)
                raise BodyTooLargeError(self._max_bytes)
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                if message.get("more_body", False):
                    await self._drain(receive)
                raise BodyTooLargeError(self._max_bytes)
            return message

        await self._app(scope, limited_receive, send)

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
