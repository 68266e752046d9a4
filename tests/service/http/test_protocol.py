"""Clients that hold on: each connection ends, and the next client is answered."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from service.http.protocol import bounded_protocol
from service.settings import ServiceSettings

LARGE = 64 * 2**20  # more than the kernel buffers for a client that does not read

Connect = Callable[[], socket.socket]


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
def serving(**limits: float) -> Iterator[tuple[Connect, uvicorn.Server]]:
    """Serve `app` with limits; gives what opens connections to it."""
    settings = ServiceSettings(**limits)  # pyright: ignore[reportArgumentType]
    config = uvicorn.Config(
        app, http=bounded_protocol(settings), lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        address = listener.getsockname()
        try:
            yield lambda: socket.create_connection(address, timeout=10), server
        finally:
            server.should_exit = True
            thread.join()


def rest(client: socket.socket) -> bytes:
    """Read until the other side closes."""
    received = bytearray()
    while part := client.recv(2**16):
        received += part
    return bytes(received)


def ask(connect: Connect) -> bytes:
    """Send a good request on a connection of its own."""
    with connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return rest(client)


def test_a_head_that_trickles_in_is_ended() -> None:
    with serving(head_timeout_s=0.3) as (connect, _), connect() as client:
        started = time.monotonic()
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


def test_large_bodies_are_no_heads() -> None:
    body = b"b" * 500_000
    request = b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n" + body
    with serving(head_timeout_s=0.3) as (connect, _), connect() as client:
        for _ in range(3):
            client.sendall(request)
            assert client.recv(2**16).startswith(b"HTTP/1.1 200 ")


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
    with serving(send_timeout_s=1) as (connect, _), connect() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        time.sleep(0.2)
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


def test_a_body_that_goes_on_after_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.http.protocol._TAIL_S", 0.3)
    with serving() as (connect, _), connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(500):
                client.sendall(b"1\r\nx\r\n")
                time.sleep(0.02)
        assert ask(connect).startswith(b"HTTP/1.1 200 ")
