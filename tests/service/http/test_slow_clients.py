"""Clients that hold on: each connection ends, and the next client is answered."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from aladin_service.http.connections import PROBE_PLACES, trusted_proxies
from aladin_service.http.server import server_config
from aladin_service.settings import ServiceSettings

LARGE = 64 * 2**20  # more than the kernel buffers for a client that does not read

Connect = Callable[..., socket.socket]

HALF_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
HALF_BODY = b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"
OTHER_CLIENT = ("127.0.0.2", 0)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once, whatever of the body has come; /large with much, /whole after the body."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/whole":
        while (await receive()).get("more_body"):
            pass
    body = b"." * (LARGE if scope["path"] == "/large" else 4)
    length = str(len(body)).encode()
    headers = [(b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(proxies: str = "", **limits: float) -> Generator[tuple[Connect, uvicorn.Server]]:
    """Serve `app` with limits; gives what opens connections to it."""
    settings = ServiceSettings(**limits)  # pyright: ignore[reportArgumentType]
    config = server_config(app, settings, trusted_proxies({"FORWARDED_ALLOW_IPS": proxies}))
    config.lifespan = "off"
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        address = listener.getsockname()
        try:
            yield partial(socket.create_connection, address, timeout=10), server
        finally:
            server.should_exit = True
            thread.join()


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
    """Return the status of an answer."""
    return int(answer.split(b" ")[1])


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait a few seconds at most."""
    ends = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def hold(
    stack: ExitStack,
    connect: Connect,
    count: int,
    sent: bytes = HALF_HEAD,
    address: tuple[str, int] | None = None,
) -> list[socket.socket]:
    """Open connections that send a part of a request and wait; `stack` closes them.

    A connection that is opened later is accepted later, so there is nothing to wait for.
    """
    held: list[socket.socket] = []
    for _ in range(count):
        client = stack.enter_context(connect(source_address=address))
        client.sendall(sent)
        held.append(client)
    return held


def test_a_head_that_trickles_in_is_ended() -> None:
    with serving(head_timeout_s=0.3) as (connect, _), ExitStack() as stack:
        started = time.monotonic()  # the service counts from the connection on
        client = stack.enter_context(connect())
        client.sendall(b"GET / HTTP/1.1\r\n")
        received = b""
        client.settimeout(0.05)
        for number in range(200):
            try:
                client.sendall(b"X-%d: 1\r\n" % number)
                received = client.recv(2**16)
                break
            except TimeoutError:
                continue
        assert received.startswith(b"HTTP/1.1 408 ")
        assert 0.3 <= time.monotonic() - started < 5
        assert ask(connect).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"G"])
def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    with serving(head_timeout_s=0.1) as (connect, _), connect() as client:
        client.sendall(sent)
        answer = rest(client)
        assert answer == b"" if not sent else answer.startswith(b"HTTP/1.1 408 ")


def test_a_second_head_has_its_own_time() -> None:
    with serving(head_timeout_s=0.3) as (connect, _), connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(2**16).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"GET / HTTP")
        assert b"HTTP/1.1 408 " in rest(client)


def test_a_head_without_end_is_refused() -> None:
    with serving() as (connect, _), connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError):  # closed while this side still sends
            for _ in range(10_000):
                client.sendall(b"X: " + b"a" * 1000 + b"\r\n")
        assert ask(connect).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(
    ("url_bytes", "status"), [(2**16 - 1000, b"200"), (2**16, b"414"), (200_000, b"414")]
)
def test_a_long_url_is_told_apart_from_a_long_head(
    pieces: int, url_bytes: int, status: bytes
) -> None:
    end = b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    head = b"GET /" + b"a" * (url_bytes - 1) + end
    step, received = -(-len(head) // pieces), b""
    with serving() as (connect, _), connect() as client:
        client.settimeout(0.1)
        for first in range(0, len(head), step):
            client.sendall(head[first : first + step])
            with suppress(TimeoutError):
                received = client.recv(2**16)
                break  # perhaps before the end of the head
        assert received.split()[1] == status
        assert ask(connect).startswith(b"HTTP/1.1 200 ")


def test_large_bodies_are_no_heads() -> None:
    body = b"b" * 500_000
    request = b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n" + body
    with serving(head_timeout_s=0.3) as (connect, _), connect() as client:
        for _ in range(3):
            client.sendall(request)
            with client.makefile("rb") as answer:
                assert answer.readline().startswith(b"HTTP/1.1 200 ")
                while answer.readline() != b"\r\n":
                    pass
                assert answer.read(4) == b"...."


def test_requests_sent_ahead_are_all_answered() -> None:
    with serving(head_timeout_s=0.3) as (connect, _), connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 3000)
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert rest(client).count(b"HTTP/1.1 200 ") == 3001


def test_an_answer_that_nobody_reads_is_dropped() -> None:
    with serving(send_timeout_s=0.4) as (connect, server), connect() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        started = time.monotonic()
        while not server.server_state.connections and time.monotonic() - started < 5:
            time.sleep(0.01)
        while server.server_state.connections and time.monotonic() - started < 5:
            time.sleep(0.01)
        assert not server.server_state.connections
        with contextlib.suppress(ConnectionResetError):
            assert len(rest(client)) < LARGE
        assert ask(connect).startswith(b"HTTP/1.1 200 ")


def test_an_answer_that_is_read_slowly_arrives() -> None:
    # Only the time to send counts while the client reads, however long a head may take.
    with serving(head_timeout_s=0.2, send_timeout_s=60) as (connect, _), connect() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        time.sleep(0.6)
        assert len(rest(client)) > LARGE


def test_more_connections_than_allowed_are_told_so_and_closed() -> None:
    with serving(max_connections=2) as (connect, server):
        with connect(), connect():
            started = time.monotonic()
            while len(server.server_state.connections) < 2 and time.monotonic() - started < 5:
                time.sleep(0.01)
            with connect() as third:
                assert rest(third).startswith(b"HTTP/1.1 503 ")
        started = time.monotonic()
        while server.server_state.connections and time.monotonic() - started < 5:
            time.sleep(0.01)
        assert ask(connect).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY])
def test_one_client_cannot_take_the_connections_of_the_others(sent: bytes) -> None:
    with (
        serving(max_connections=20, max_connections_per_client=3) as (connect, server),
        ExitStack() as stack,
    ):
        hold(stack, connect, 6, sent)
        assert status(ask(connect)) == 503
        assert status(ask(connect, address=OTHER_CLIENT)) == 200
        # Its own connections do count again once they are closed.
        stack.close()
        wait_until(lambda: not server.server_state.connections)
        assert status(ask(connect)) == 200


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY])
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthz?now"])
def test_probes_are_answered_at_the_limit_of_all_connections(sent: bytes, path: str) -> None:
    with serving(max_connections=3) as (connect, _), ExitStack() as stack:
        hold(stack, connect, 3, sent)
        hold(stack, connect, PROBE_PLACES + 20, sent)
        for address in (None, OTHER_CLIENT):
            answer = ask(connect, path, address=address)
            assert status(answer) == 200
            assert b"connection: close" in answer.lower()


def test_only_probes_are_answered_at_the_limit() -> None:
    with serving(max_connections=1) as (connect, _), ExitStack() as stack:
        hold(stack, connect, 1)
        for method, path in (
            ("GET", "/"),
            ("GET", "/healthz/"),
            ("GET", "/v1/healthz"),
            ("POST", "/healthz"),
            ("DELETE", "/readyz"),
        ):
            answer = ask(connect, path, method)
            assert status(answer) == 503
            assert b"retry-after: 1\r\n" in answer.lower()
            assert answer.endswith(b"\r\n\r\n")
        # Nor does a probe open the door for what follows it.
        with connect() as client:
            probe = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
            client.sendall(probe + probe.replace(b"/healthz", b"/"))
            assert rest(client).count(b"HTTP/1.1 ") == 1


def test_at_the_limit_there_is_little_time_for_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aladin_service.http.connections._PROBE_HEAD_S", 0.2)
    with serving(max_connections=1) as (connect, _), ExitStack() as stack:
        (served,) = hold(stack, connect, 1)
        for sent in (b"", HALF_HEAD, b"GET /healthz HTTP/1.1\r\n"):
            (waiting,) = hold(stack, connect, 1, sent)
            assert status(rest(waiting)) == 503
        served.sendall(b"Connection: close\r\n\r\n")
        assert status(rest(served)) == 200


def test_connections_of_named_proxies_are_not_limited_one_by_one() -> None:
    with (
        serving("127.0.0.0/24", max_connections=10, max_connections_per_client=1) as (connect, _),
        ExitStack() as stack,
    ):
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
        for _ in range(4):
            with connect() as client:
                client.sendall(upgrade)
                assert client.recv(2**16).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: not server.server_state.connections)
        assert status(ask(connect)) == 200


def test_a_body_that_goes_on_after_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aladin_service.http.connections._TAIL_S", 0.3)
    with serving() as (connect, _), connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(500):
                client.sendall(b"1\r\nx\r\n")
                time.sleep(0.02)
        assert ask(connect).startswith(b"HTTP/1.1 200 ")
