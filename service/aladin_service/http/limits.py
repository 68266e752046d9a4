"""Limits on request bodies, and early rejection of searches under overload.

`BodyLimit` limits the bytes of one body and of all bodies together, and the time that a body may
take. `OverloadGate` rejects searches that the queue cannot take, before they are parsed or routed:
if rejecting cost as much as reading a search and finding its route, at twice the service's capacity
rejections would occupy the processors.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aladin_service.http.error_responses import error_response
from aladin_service.http.errors import (
    BodiesTooLargeError,
    BodyTimeoutError,
    BodyTooLargeError,
)
from aladin_service.work.workers import Workers

# Value for numbers with more digits: `int` would raise an error for thousands of them.
ENDLESS_BYTES = 10**18
_DIGITS = 18

# A client that still sends when the connection closes may never see the answer, so the rest of an
# oversized body is read and discarded: for at most this long, and up to this multiple of the limit.
_DRAIN_S = 5.0
_DRAIN_LIMITS = 8

_PATHS = frozenset({"/v1/search/images", "/v1/search/texts"})
# A shorter body contains no photo, so it is a text or the id of an item, which wait for the same
# slots. A longer one is read first: it may belong to a lane with free slots.
_TEXT_BYTES = 2048


def declared_length(scope: Scope) -> int | None:
    """Read the header Content-Length.

    Args:
        scope: Scope of an HTTP request.

    Returns:
        Bytes, at most `ENDLESS_BYTES`; None where it is not told, or is no number.
    """
    text: bytes = dict(scope["headers"]).get(b"content-length", b"")
    if not text.isdigit():
        return None
    return int(text) if len(text) <= _DIGITS else ENDLESS_BYTES


class BodyLimit:
    """Stops reading a request's body as soon as it exceeds a limit, declared or not."""

    def __init__(
        self, app: ASGIApp, max_bytes: int, max_bytes_in_all: int, timeout_s: float
    ) -> None:
        """Wrap an application.

        Args:
            app: Application whose requests may have bodies.
            max_bytes: Largest size of a body.
            max_bytes_in_all: Largest total size of the bodies of all unanswered requests. Received
                bytes count, not the declared length, which costs a client nothing. A single body is
                read regardless of this limit.
            timeout_s: Time limit of the whole body, from the first read. A minimum rate would also
                work, but would not show how long a slow client can stay connected.
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
                # A client that waits for 100 Continue has sent nothing yet.
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


class OverloadGate:
    """Answers 429 or 503 before the routes if a text query would be rejected."""

    def __init__(self, app: ASGIApp, workers: Workers) -> None:
        """Wrap an application.

        Args:
            app: Application whose searches the workers answer.
            workers: Workers, which know the number of waiting queries.
        """
        self._app = app
        self._workers = workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["path"] in _PATHS:
            length = declared_length(scope)
            is_text = length is not None and length <= _TEXT_BYTES
            refusal = self._workers.refusal("text") if is_text else None
            if refusal is not None:
                scope["state"]["route"] = scope["path"]
                answer = error_response(refusal, scope["state"]["request_id"])
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
