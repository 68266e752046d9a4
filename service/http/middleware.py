"""What holds for every request: an id, a limit on its body, and an answer whatever happens."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.errors import BodyTooLargeError, error_response

_LOG = logging.getLogger(__name__)

_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

# A client that still sends when the connection closes may never see the answer, so the rest of a
# body that is too large is read and thrown away: at most this long, and this many limits' worth.
_DRAIN_S = 5.0
_DRAIN_LIMITS = 8


class RequestContext:
    """Gives every request an id, and every unforeseen error a plain 500 that tells no internals."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            _LOG.info("request %s: the client hung up", request_id)
        except Exception as error:
            _LOG.exception("request %s: %s %s failed", request_id, scope["method"], scope["path"])
            if started:
                raise
            await error_response(error, request_id)(scope, receive, send_with_id)


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
