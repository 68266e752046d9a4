"""HTTP connections with limits on their number, their duration and the size of request heads.

At the limits a connection is not closed immediately, because it may be a liveness probe. It has a
short time to send a request head: a probe is answered, any other request is rejected. Only a few
connections wait in this way, and the client that has most of them loses its oldest one first, so
that no client can crowd out the probes of another one, however many connections it opens.

uvicorn itself reads as long as a client sends, waits as long as it does not, and keeps a response
until it is read. `BoundedProtocol` limits each of these: incomplete or oversized heads, responses
that are not read, and bodies that continue after their response. Request bodies that are read have
their limits in `BodyLimit`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import time
from asyncio import TimerHandle
from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Literal, Protocol

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aladin_network.errors import ConfigError
from aladin_service.http.access.rate_limits import Clock, client_network
from aladin_service.settings import ServiceSettings

_LOG = logging.getLogger(__name__)

# Connections beyond the limits that may wait for their request heads at the same time.
PROBE_PLACES = 100

# Thousands of connections may be refused at once, and one log line is enough for all of them.
_LOG_EVERY_S = 60.0

Place = Literal["served", "probe"]
Networks = Sequence[IPv4Network | IPv6Network]

# uvicorn reads the same variable, but trusts every process of this machine if it is unset.
_PROXIES_VARIABLE = "FORWARDED_ALLOW_IPS"

# Limit of one request head: browsers and proxies send a few kB.
_MAX_HEAD_BYTES = 64 * 2**10
# Limit of the URL in it, which is that of httptools' parser of URLs.
_MAX_URL_BYTES = 2**16 - 1

# How long a client may continue to send a body after its answer, as in `BodyLimit`.
_TAIL_S = 5.0

# Connections are checked periodically, at no cost to their requests: at least this often, and this
# many times within the shortest limit.
_LOOK_S = 1.0
_LOOKS = 4

# Time limit of a connection beyond the limits: a probe sends its head immediately.
_PROBE_HEAD_S = 2.0
_PROBES = frozenset({b"/healthz", b"/readyz"})

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Connection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
)
_HEAD_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
)
_URL_TOO_LONG = b"HTTP/1.1 414 URI Too Long\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Closable(Protocol):
    """A connection as seen by the connection limits."""

    def close_as_full(self) -> None:
        """Answer that there are too many connections, and close."""
        ...


def trusted_proxies(variables: Mapping[str, str] = os.environ) -> Networks:
    """Read the addresses and networks of the proxies whose word on their clients is taken.

    FORWARDED_ALLOW_IPS is a list separated by commas; none is trusted if it is unset or empty.
    """
    networks: list[IPv4Network | IPv6Network] = []
    for entry in variables.get(_PROXIES_VARIABLE, "").split(","):
        try:
            if entry.strip():
                networks.append(ipaddress.ip_network(entry.strip()))
        except ValueError as error:
            raise ConfigError(
                f"{_PROXIES_VARIABLE}: expected IP addresses and networks separated by commas, "
                f"such as 10.0.0.2,192.168.0.0/16, got {entry.strip()[:100]!r}: {str(error)[:200]}"
            ) from None
    return networks


class ConnectionLimits:
    def __init__(
        self, settings: ServiceSettings, proxies: Networks, clock: Clock = time.monotonic
    ) -> None:
        self._max_in_all = settings.max_connections
        self._max_per_client = settings.max_connections_per_client
        self._proxies = proxies
        self._clock = clock
        self._served: dict[Closable, str] = {}
        self._served_of: Counter[str] = Counter()
        self._probes: dict[Closable, str] = {}
        self._probes_of: dict[str, dict[Closable, None]] = {}  # each in the order of arrival
        self._next_log_s = clock()

    def enter(self, connection: Closable, peer: str | None) -> Place:
        """Decide how a new connection is served.

        As a "probe" if a limit is reached and no more than a probe may be answered. A peer
        is None for a Unix socket, whose clients are not told apart.
        """
        who = "" if peer is None else client_network(peer)
        if self._is_over(who, peer):
            self._make_room()
            self._probes[connection] = who
            self._probes_of.setdefault(who, {})[connection] = None
            return "probe"
        self._served[connection] = who
        self._served_of[who] += 1
        return "served"

    def leave(self, connection: Closable) -> None:
        """Forget a connection that is closed, or about to be."""
        who = self._served.pop(connection, None)
        if who is not None:
            self._served_of[who] -= 1
            if not self._served_of[who]:
                del self._served_of[who]
            return
        who = self._probes.pop(connection, None)
        if who is not None:
            del self._probes_of[who][connection]
            if not self._probes_of[who]:
                del self._probes_of[who]

    def _is_over(self, who: str, peer: str | None) -> bool:
        if len(self._served) >= self._max_in_all:
            self._tell(f"{self._max_in_all} connections are open (ALADIN_MAX_CONNECTIONS)")
            return True
        if peer is None or any(ipaddress.ip_address(peer) in one for one in self._proxies):
            return False
        if self._served_of[who] >= self._max_per_client:
            self._tell(
                f"{who} has {self._max_per_client} connections open "
                "(ALADIN_MAX_CONNECTIONS_PER_CLIENT; FORWARDED_ALLOW_IPS exempts proxies)"
            )
            return True
        return False

    def _make_room(self) -> None:
        if len(self._probes) >= PROBE_PLACES:
            most = max(self._probes_of.values(), key=len)
            oldest = next(iter(most))
            self.leave(oldest)
            oldest.close_as_full()

    def _tell(self, why: str) -> None:
        now_s = self._clock()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + _LOG_EVERY_S
            _LOG.warning("rejecting connections except probes: %s", why)


def bounded_protocol(settings: ServiceSettings, proxies: Networks) -> type[asyncio.Protocol]:
    """Return the class of a server's connections; uvicorn creates the instances."""

    class Protocol(BoundedProtocol):
        pass

    Protocol.settings = settings
    Protocol.limits = ConnectionLimits(settings, proxies)
    return Protocol


class BoundedProtocol(HttpToolsProtocol):
    """A uvicorn connection that closes when its client exceeds a limit."""

    settings: ServiceSettings
    limits: ConnectionLimits

    url = b""  # until the first head begins

    # Start of each state by the event loop's clock, or None outside that state.
    _head_since: float | None = None  # the client owes (the rest of) a head
    _tail_since: float | None = None  # it has its answer and still sends the request's body
    _unsent_since: float | None = None  # it does not read
    _head_bytes = 0
    _in_body = False
    _message_ended = False
    _look: TimerHandle | None = None
    _place: Place = "served"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place = self.limits.enter(self, None if self.client is None else self.client[0])
        self._head_since = self.loop.time()
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.leave(self)
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._message_ended = False
        super().data_received(data)
        # If a message ended in these bytes, at most the remaining ones belong to the next head.
        if self._in_body or self._message_ended or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MAX_HEAD_BYTES:
            self._refuse(_URL_TOO_LONG if len(self.url) > _MAX_URL_BYTES else _HEAD_TOO_LARGE)
        elif self._head_since is None:
            self._head_since = self.loop.time()

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._head_since = None
        self._unsent_since = None  # a client that asks for more has taken what it got
        if len(self.url) > _MAX_URL_BYTES:
            self.url = b"/"  # in place of what cannot be parsed
            self.app = _answer_long_url
            self._answer_and_close()
            return
        if self._place == "served":
            super().on_headers_complete()
            return
        assert self.parser is not None  # until the connection is lost
        path = self.url.partition(b"?")[0]
        is_probe = self.parser.get_method() == b"GET" and path in _PROBES
        self.app = self.config.loaded_app if is_probe else _answer_full
        self._answer_and_close()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._message_ended = True
        self._head_bytes = 0
        self._tail_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._in_body and not self._answering():
            self._tail_since = self.loop.time()
        super().on_response_complete()

    def resume_writing(self) -> None:
        """Send the next part of an answer, which the client has as much time for."""
        self._unsent_since = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close the idle connection, and discard output that its client does not read."""
        if self._unsent():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def close_as_full(self) -> None:
        self._refuse(_FULL)

    def _head_timeout_s(self) -> float:
        limit_s = self.settings.head_timeout_s
        return limit_s if self._place == "served" else min(limit_s, _PROBE_HEAD_S)

    def _look_later(self) -> None:
        shortest_s = min(self._head_timeout_s(), self.settings.send_timeout_s)
        wait_s = min(_LOOK_S, shortest_s / _LOOKS)
        self._look = self.loop.call_later(wait_s, self._look_at_limits)

    def _look_at_limits(self) -> None:
        now = self.loop.time()
        if not self._unsent():
            self._unsent_since = None
        elif self._unsent_since is None:
            self._unsent_since = now
        if _is_over(self._unsent_since, now, self.settings.send_timeout_s):
            self.transport.abort()
            return
        if self._answering() and self._head_since is not None:
            self._head_since = now  # it may be us who do not read on
        if _is_over(self._head_since, now, self._head_timeout_s()):
            if self._place == "probe":
                self._refuse(_FULL)
            else:
                # A client that sent nothing receives no answer.
                self._refuse(_HEAD_TIMEOUT if self._head_bytes else b"")
        elif _is_over(self._tail_since, now, _TAIL_S):
            self._refuse(b"")
        self._look_later()

    def _answer_and_close(self) -> None:
        """Have `app` answer the request whose head is complete, and close."""
        super().on_headers_complete()
        self.cycle.keep_alive = False

    def _answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _unsent(self) -> bool:
        return self.transport.get_write_buffer_size() > 0

    def _refuse(self, answer: bytes) -> None:
        """Close the connection; watching continues until the client has received the answer."""
        if not self.transport.is_closing():
            if answer and not self._answering():
                self.transport.write(answer)
            self.transport.close()


async def _answer_full(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive
    await _answer_empty(send, 503, (b"retry-after", b"1"))


async def _answer_long_url(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive
    await _answer_empty(send, 414)


async def _answer_empty(send: Send, status: int, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"connection", b"close"), *more, (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body"})


def _is_over(since: float | None, now: float, limit_s: float) -> bool:
    return since is not None and now - since > limit_s
