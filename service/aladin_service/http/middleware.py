"""Middleware of every request: its id and log line, early rejection of searches, body limits.

`RequestContext` gives a request its id, and records its log line, counts and trace. `BodyLimit`
limits the bytes of one body and of all bodies together, and the time that a body may take.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aladin_service.http.access.control import DATA_HEADERS, HEADERS_BY_PATH, SHOWN_CLIENT_CHARS
from aladin_service.http.error_responses import HUNG_UP, error_response
from aladin_service.http.errors import (
    BodiesTooLargeError,
    BodyTimeoutError,
    BodyTooLargeError,
)
from aladin_service.observe.logs import CURRENT_REQUEST, FIELDS, RequestRecord
from aladin_service.observe.metrics import Metrics

if TYPE_CHECKING:
    from aladin_service.observe.otel_tracing import OtelRequestTrace, OtelTracing

_LOG = logging.getLogger(__name__)
_ACCESS = logging.getLogger("service.access")

# Length of the random ids of requests that bring none.
_ID_BYTES = 16
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

# Label of requests without a route of ours: framework pages, unknown paths, rejected keys.
_OTHER = "other"
# Polled every few seconds by machines; successful requests are not logged.
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
# No legitimate path is longer.
_SHOWN_PATH_CHARS = 500

# Value for numbers with more digits: `int` would raise an error for thousands of them.
ENDLESS_BYTES = 10**18
_MAX_DIGITS = 18

# A client that still sends when the connection closes may never see the answer, so the rest of an
# oversized body is read and discarded: for at most this long, and up to this multiple of the limit.
_DRAIN_S = 5.0
_DRAIN_LIMITS = 8


class LayeredApplication(FastAPI):
    """The framework's application behind the layers of the service.

    The framework would put layers of its own around them, which searches do without.

    Attributes:
        layers: Outermost layer of the service; the innermost one calls `framework`.
        inside: The layer that access control passes requests to.
    """

    layers: ASGIApp
    inside: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.layers(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Build the framework's layers without its handler of errors: `RequestContext` is ours."""
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)
        return stack.app

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request that is not a search."""
        await super().__call__(scope, receive, send)


@dataclass(slots=True)
class _Exchange:
    """A request and what was sent of its answer.

    Attributes:
        status: Status of the answer, or `HUNG_UP` as long as none was sent.
        bytes: Size of the answer's body.
    """

    scope: Scope
    record: RequestRecord
    trace: OtelRequestTrace | None
    outer_send: Send
    started_s: float
    status: int = HUNG_UP
    bytes: int = 0

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = (b"x-request-id", self.record.request_id.encode())
            kept = HEADERS_BY_PATH.get(self.scope["path"], DATA_HEADERS)
            message["headers"] = [*message["headers"], own, *kept]
        else:
            self.bytes += len(message.get("body", b""))
        await self.outer_send(message)

    async def fail(self, error: Exception, receive: Receive) -> None:
        """Answer that an error was raised; raise it if half an answer is out."""
        answer = error_response(error, self.record.request_id)
        if answer.status_code >= 500:
            where = f"{self.scope['method']} {_shown_path(self.scope)}"
            _LOG.error("request %s: %s failed", self.record.request_id, where, exc_info=error)
        if self.status != HUNG_UP:  # the connection has to break
            raise error
        await answer(self.scope, receive, self.send)


class RequestContext:
    """Gives every request an id, and unexpected errors a plain 500 without internal details.

    When the answer is out, or the client gone, the request is counted and logged in one line.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: OtelTracing | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.perf_counter()
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given.decode() if _SAFE_ID.fullmatch(given) else os.urandom(_ID_BYTES).hex()
        scope.setdefault("state", {})["request_id"] = request_id
        record = RequestRecord(request_id, scope["path"])
        before = CURRENT_REQUEST.set(record)
        trace = None if self._tracing is None else self._tracing.begin(scope)
        if trace is not None:
            record.trace_id = trace.trace_id
        exchange = _Exchange(scope, record, trace, send, started_s)
        try:
            await self._app(scope, receive, exchange.send)
        except ClientDisconnect:
            _LOG.debug("client disconnected")
        except Exception as error:
            await exchange.fail(error, receive)
        finally:
            seconds = time.perf_counter() - started_s
            # In the loop's next turn: it writes at the end of each what was sent in it.
            asyncio.get_running_loop().call_soon(self._finish, exchange, seconds)
            CURRENT_REQUEST.reset(before)

    def _finish(self, exchange: _Exchange, seconds: float) -> None:
        """Count a request after its answer is sent, end its trace and write its log line."""
        scope, record, status = exchange.scope, exchange.record, exchange.status
        # The template, such as /v1/items/{target}/{item_id}.
        route: str = getattr(scope.get("route"), "path_format", _OTHER)
        self._metrics.request(scope["method"], route, status, seconds)
        if status == 429:
            self._metrics.rejected(record.error_code or _OTHER)
        if exchange.trace is not None:
            shown = None if route == _OTHER else route
            exchange.trace.end(shown, None if status == HUNG_UP else status, record)
        level = logging.DEBUG if route in _PROBES and status < 400 else logging.INFO
        if _ACCESS.isEnabledFor(level):
            fields = _fields(exchange, route, seconds)
            line = (scope["method"], fields["path"], status, fields["ms"])
            _ACCESS.log(level, "%s %s %d %.1f ms", *line, extra={FIELDS: fields})


def _shown_path(scope: Scope) -> str:
    """Return the path as sent, without the query; no character in it can break a log line."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    shown = path[:_SHOWN_PATH_CHARS].decode("ascii", "backslashreplace")
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def _fields(exchange: _Exchange, route: str, seconds: float) -> dict[str, Any]:
    """Return the fields of the access log line of a request.

    Keys, other headers and what was searched for are left out: they are secrets and user data.
    """
    scope, record = exchange.scope, exchange.record
    client = scope.get("client")
    key = scope["state"].get("key")
    fields: dict[str, Any] = {
        "method": scope["method"],
        "route": route,
        "path": _shown_path(scope),
        "status": exchange.status,
        "ms": round(1000 * seconds, 2),
        "bytes": exchange.bytes,
        "client": None if client is None else client[0][:SHOWN_CLIENT_CHARS],
        "key": None if key is None else key.name,
    }
    declared = declared_length(scope)
    if declared is not None and declared < ENDLESS_BYTES:
        fields["request_bytes"] = declared
    if record.error_code is not None:
        fields["error"] = record.error_code
    if record.documents:
        fields["documents"] = record.documents
    if record.failed_parts:
        fields["failed_parts"] = record.failed_parts
    if record.searches:
        last = record.searches[-1]
        fields["generation"] = last.answered.generation
        fields["lane"] = last.queue
        fields["batch"] = last.answered.batch
        fields["degraded"] = sorted(
            {each for one in record.searches for each in one.answered.degraded}
        )
        if len(record.searches) > 1:
            fields["searches"] = len(record.searches)
    return fields


class BodyLimit:
    """Stops reading a request's body as soon as it exceeds a limit, declared or not.

    The limit of all unanswered requests counts received bytes, not the declared length, which
    costs a client nothing; a single body is read regardless of it. The time is that of the
    whole body, from its first read: a minimum rate would not show how long a slow client can
    stay connected.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, max_bytes_in_all: int, timeout_s: float
    ) -> None:
        self._app = app
        self.max_bytes = max_bytes
        self.max_bytes_in_all = max_bytes_in_all
        self.timeout_s = timeout_s
        self.held = 0  # bytes of all bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _LimitedBody(self, scope, receive)
        try:
            await self._app(scope, body.receive, send)
        finally:
            self.held -= body.received


@dataclass(slots=True)
class _LimitedBody:
    """The body of one request.

    Attributes:
        received: Bytes of it so far.
        whole: Whether all of it was received.
        deadline_s: Time of the loop by which it has to be whole; None before the first read.
    """

    limit: BodyLimit
    scope: Scope
    outer_receive: Receive
    received: int = 0
    whole: bool = False
    deadline_s: float | None = None

    async def receive(self) -> Message:
        """Receive the next part, or raise the error of the limit that it exceeds."""
        if self.whole:
            return await self.outer_receive()  # until the client hangs up
        limit = self.limit
        if self.deadline_s is None:
            if (declared_length(self.scope) or 0) > limit.max_bytes:
                # A client that waits for 100 Continue has sent nothing yet.
                if Headers(scope=self.scope).get("expect", "").lower() != "100-continue":
                    await self._drain()
                raise BodyTooLargeError(limit.max_bytes)
            self.deadline_s = asyncio.get_running_loop().time() + limit.timeout_s
        try:
            async with asyncio.timeout_at(self.deadline_s):
                message = await self.outer_receive()
        except TimeoutError:
            raise BodyTimeoutError(limit.timeout_s) from None
        self.whole = not message.get("more_body", False)
        length = len(message.get("body", b""))
        self.received += length
        limit.held += length
        if limit.held > max(self.received, limit.max_bytes_in_all):
            raise BodiesTooLargeError
        if self.received > limit.max_bytes:
            await self._drain()
            raise BodyTooLargeError(limit.max_bytes)
        return message

    async def _drain(self) -> None:
        """Discard what is still sent of a body that is too large, up to a limit."""
        left = _DRAIN_LIMITS * self.limit.max_bytes
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while left > 0 and not self.whole:
                    message = await self.outer_receive()
                    left -= len(message.get("body", b""))
                    self.whole = not message.get("more_body", False)


def declared_length(scope: Scope) -> int | None:
    """Read the header Content-Length.

    At most `ENDLESS_BYTES`; None if it is missing or no number.
    """
    text: bytes = dict(scope["headers"]).get(b"content-length", b"")
    if not text.isdigit():
        return None
    return int(text) if len(text) <= _MAX_DIGITS else ENDLESS_BYTES
