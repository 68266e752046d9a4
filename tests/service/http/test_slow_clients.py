"""Clients that hold on: each connection ends, and the next client is answered."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from aladin_service.http.connections import PROBE_PLACES
from aladin_service.settings import ServiceSettings
from tests.service.http.conftest import listening

PART = 2**20
LARGE = 32 * PART  # more than the kernel buffers for a client that does not read

Connect = Callable[..., socket.socket]

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
HALF_BODY = b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"
OTHER_CLIENT = ("127.0.0.2", 0)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once, whatever of the body has come; /large with much, /whole after the body."""
    if scope["type"] == "lifespan":
        return
    if scope["path"] == "/whole":
        while (await receive()).get("more_body"):
            pass
    if scope["path"] == "/parts":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(LARGE // PART):
            await send({"type": "http.response.body", "body": b"." * PART, "more_body": True})
        await send({"type": "http.response.body"})
        return
    body = b"." * (LARGE if scope["path"] == "/large" else 4)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(proxies: str = "", **limits: float) -> Generator[tuple[Connect, uvicorn.Server]]:
    """Serve `app` with limits; gives what opens connections to it."""
    settings = ServiceSettings(**limits)  # pyright: ignore[reportArgumentType]
    with listening(app, settings, proxies) as (port, server):
        yield partial(socket.create_connection, ("127.0.0.1", port), timeout=10), server


def rest(client: socket.socket) -> bytes:
    """Read until the other side closes."""
    received = bytearray()
    while part := client.recv(2**16):
        received += part
    return bytes(received)


def ask(
    connect: Connect, path: str = "/", method: str = "GET", address: tuple[str, int] | None = None
) -> bytes:
    """Send a good request on a connection of its own, from an address of this machine."""
    with connect(source_address=address) as client:
        head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        return rest(client)


def status(answer: bytes) -> int:
    """Return the status of an answer; 0 if there is none."""
    return int(answer.split(b" ")[1]) if answer else 0


def wait_for(server: uvicorn.Server, connections: int) -> None:
    """Wait a few seconds at most for a number of connections."""
    ends = time.monotonic() + 10
    while len(server.server_state.connections) != connections:
        assert time.monotonic() < ends
        time.sleep(0.01)


def hold(stack: ExitStack, connect: Connect, count: int, sent: bytes = HALF_HEAD) -> None:
    """Open connections that send a part of a request and wait; `stack` closes them.

    A connection that is opened later is accepted later, so there is nothing to wait for.
    """
    for _ in range(count):
        stack.enter_context(connect()).sendall(sent)


def test_a_head_that_trickles_in_is_ended() -> None:
    with serving(head_timeout_s=0.3) as (connect, _), ExitStack() as stack:
        started = time.monotonic()  # the service counts from the connection on
        client = stack.enter_context(connect())
        client.sendall(b"GET / HTTP/1.1\r\n")
        received = b""
        client.settimeout(0.05)
        for number in range(200):
            with suppress(TimeoutError):
                client.sendall(b"X-%d: 1\r\n" % number)
                received = client.recv(2**16)
                break
        assert status(received) == 408
        assert 0.3 <= time.monotonic() - started < 5
        assert status(ask(connect)) == 200


@pytest.mark.parametrize(
    ("first", "sent", "answered"),
    [(b"", b"", 0), (b"", b"\r\n", 408), (b"", b"G", 408), (GET, b"GET / HTTP", 408)],
)
def test_half_a_head_is_ended_on_a_connection_of_its_own_or_after_an_answer(
    first: bytes, sent: bytes, answered: int
) -> None:
    with serving(head_timeout_s=0.1) as (connect, _), connect() as client:
        if first:
            client.sendall(first)
            assert status(client.recv(2**16)) == 200
        client.sendall(sent)
        assert status(rest(client).removeprefix(b"....")) == answered


def test_a_head_without_end_is_refused() -> None:
    with serving() as (connect, _), connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError):  # closed while this side still sends
            for _ in range(10_000):
                client.sendall(b"X: " + b"a" * 1000 + b"\r\n")
        assert status(ask(connect)) == 200


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(
    ("url_bytes", "expected"), [(2**16 - 1000, 200), (2**16, 414), (200_000, 414)]
)
def test_a_long_url_is_told_apart_from_a_long_head(
    pieces: int, url_bytes: int, expected: int
) -> None:
    head = LAST.replace(b"/ ", b"/" + b"a" * (url_bytes - 1) + b" ", 1)
    step, received = -(-len(head) // pieces), b""
    with serving() as (connect, _), connect() as client:
        client.settimeout(0.1)
        for first in range(0, len(head), step):
            client.sendall(head[first : first + step])
            with suppress(TimeoutError):
                received = client.recv(2**16)
                break  # perhaps before the end of the head
        assert status(received) == expected
        assert status(ask(connect)) == 200


def test_large_bodies_are_no_heads() -> None:
    body = b"b" * 500_000
    request = b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n" + body
    with serving(head_timeout_s=0.3) as (connect, _), connect() as client:
        for _ in range(3):
            client.sendall(request)
            with client.makefile("rb") as answer:
                assert status(answer.readline()) == 200
                while answer.readline() != b"\r\n":
                    pass
                assert answer.read(4) == b"...."


def test_requests_sent_ahead_are_all_answered() -> None:
    with serving(head_timeout_s=0.3) as (connect, _), connect() as client:
        client.sendall(GET * 1000 + LAST)
        assert rest(client).count(b"HTTP/1.1 200 ") == 1001


def test_an_answer_that_nobody_reads_is_dropped() -> None:
    with serving(send_timeout_s=0.4) as (connect, server), connect() as client:
        client.sendall(GET.replace(b"/ ", b"/large ", 1))
        wait_for(server, 1)
        wait_for(server, 0)
        with suppress(ConnectionResetError):
            assert len(rest(client)) < LARGE
        assert status(ask(connect)) == 200


def test_each_part_of_an_answer_has_its_own_time() -> None:
    with serving(send_timeout_s=1) as (connect, server):
        with connect() as client:
            client.sendall(b"GET /parts HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            received, began_s = 0, time.monotonic()
            while part := client.recv(PART // 4):
                received += len(part)
                time.sleep(0.025)
            assert received >= LARGE
            assert time.monotonic() - began_s > 2
        with connect() as client:  # and no more than that
            client.sendall(b"GET /parts HTTP/1.1\r\nHost: a\r\n\r\n")
            wait_for(server, connections=1)
            wait_for(server, connections=0)


def test_an_answer_that_is_read_slowly_arrives() -> None:
    # Only the time to send counts while the client reads, however long a head may take.
    with serving(head_timeout_s=0.2, send_timeout_s=60) as (connect, _), connect() as client:
        client.sendall(LAST.replace(b"/ ", b"/large ", 1))
        time.sleep(0.5)
        assert len(rest(client)) > LARGE


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY])
def test_one_client_cannot_take_the_connections_of_the_others(sent: bytes) -> None:
    limits = {"max_connections": 20, "max_connections_per_client": 3}
    with serving(**limits) as (connect, server), ExitStack() as stack:
        hold(stack, connect, 6, sent)
        assert status(ask(connect)) == 503
        assert status(ask(connect, address=OTHER_CLIENT)) == 200
        stack.close()
        wait_for(server, 0)
        assert status(ask(connect)) == 200


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY])
def test_probes_alone_are_answered_at_the_limit_of_all_connections(sent: bytes) -> None:
    with serving(max_connections=3) as (connect, _), ExitStack() as stack:
        hold(stack, connect, 3 + PROBE_PLACES + 20, sent)
        for path in ("/healthz", "/readyz", "/healthz?now"):
            for address in (None, OTHER_CLIENT):
                answer = ask(connect, path, address=address)
                assert (status(answer), b"connection: close" in answer.lower()) == (200, True)
        others = ("GET /", "GET /healthz/", "GET /v1/healthz", "POST /healthz", "DELETE /readyz")
        for method, path in map(str.split, others):
            answer = ask(connect, path, method)
            assert (status(answer), answer[-4:]) == (503, b"\r\n\r\n")
            assert b"retry-after: 1\r\n" in answer.lower()
        with connect() as client:  # nor does a probe open the door for what follows it
            client.sendall(GET.replace(b"/ ", b"/healthz ", 1) + GET)
            assert rest(client).count(b"HTTP/1.1 ") == 1


def test_at_the_limit_there_is_little_time_for_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aladin_service.http.connections._PROBE_HEAD_S", 0.2)
    with serving(max_connections=1) as (connect, _), connect() as served:
        served.sendall(HALF_HEAD)
        for sent in (b"", HALF_HEAD, b"GET /healthz HTTP/1.1\r\n"):
            with connect() as waiting:
                waiting.sendall(sent)
                assert status(rest(waiting)) == 503
        served.sendall(b"Connection: close\r\n\r\n")
        assert status(rest(served)) == 200


def test_connections_of_named_proxies_are_not_limited_one_by_one() -> None:
    limits = {"max_connections": 10, "max_connections_per_client": 1}
    with serving("127.0.0.0/24", **limits) as (connect, _), ExitStack() as stack:
        hold(stack, connect, 9)
        assert status(ask(connect)) == 200
        hold(stack, connect, 1)
        assert status(ask(connect)) == 503
        assert status(ask(connect, "/readyz")) == 200


def test_a_websocket_is_a_request_like_any_other() -> None:
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with serving(max_connections=2) as (connect, server):
        for _ in range(3):
            with connect() as client:
                client.sendall(upgrade)
                assert status(client.recv(2**16)) == 200
            wait_for(server, 0)


def test_a_body_that_goes_on_after_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aladin_service.http.connections._TAIL_S", 0.2)
    with serving() as (connect, _), connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(500):
                client.sendall(b"1\r\nx\r\n")
                time.sleep(0.02)
        assert status(ask(connect)) == 200
