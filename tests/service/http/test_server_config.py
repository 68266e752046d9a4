"""The application as uvicorn serves it, over real sockets: who is taken for whom."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from aladin_service.http.access.policy import make_policy
from aladin_service.http.app import create_app
from aladin_service.http.connections import Networks, trusted_proxies
from aladin_service.http.server import server_config
from aladin_service.keys_file import add_key
from aladin_service.observe.logs import FIELDS
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from tests.service.http.access.conftest import FakeWorkers

SEARCH = ("POST", "/v1/search/images", json.dumps({"text": "a dog"}))
ADD = ("POST", "/v1/items/texts", json.dumps({"id": "new", "text": "a dog"}))


class Server:
    """The service on a free port of 127.0.0.1, from when it is made."""

    def __init__(self, proxies: Networks, **settings: Any) -> None:
        made = ServiceSettings(**settings)
        app = create_app(FakeWorkers(), made, Metrics(), policy=make_policy(made))
        self._server = uvicorn.Server(server_config(app, made, proxies))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def ask(self, what: tuple[str, str, str], **headers: str) -> int:
        """Send a request with headers, _ for -, and return the answer's status."""
        method, path, body = what
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            given["content-type"] = "application/json"
            connection.request(method, path, body, given)
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()


@contextmanager
def serving(**settings: Any) -> Generator[Server]:
    """Serve with settings and what the environment says of proxies."""
    server = Server(trusted_proxies(), **settings)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment name no proxy."""
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)


def addresses(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """Return the clients that the lines of a logger name."""
    return [getattr(r, FIELDS)["client"] for r in caplog.records if r.name == logger]


RATE = {"anonymous_requests_per_s": 0.001, "anonymous_burst": 3}


def test_a_client_cannot_name_itself(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), serving(**RATE) as server:
        statuses = [server.ask(SEARCH, x_forwarded_for=f"10.0.0.{n}") for n in range(8)]
        assert statuses == [200] * 3 + [429] * 5
        assert server.ask(ADD, x_forwarded_for="alice", forwarded="for=alice") == 429
    assert addresses(caplog, "service.audit") == ["127.0.0.1"]
    assert addresses(caplog, "service.access") == ["127.0.0.1"] * 9


def test_behind_a_named_proxy_clients_are_told_apart(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "192.168.0.0/16,127.0.0.1")
    with caplog.at_level(logging.INFO), serving(**RATE) as server:
        for client in ("203.0.113.7", "203.0.113.8", "2001:db8::1"):
            # What the client sent itself stands first, and does not make it another one.
            statuses = [server.ask(SEARCH, x_forwarded_for=f"10.0.0.{n}, {client}") for n in "1234"]
            assert statuses == [200, 200, 200, 429]
        assert server.ask(ADD, x_forwarded_for="203.0.113.9:4711") == 201
    assert addresses(caplog, "service.audit") == ["203.0.113.9"]
    assert set(addresses(caplog, "service.access")) == {
        "203.0.113.7",
        "203.0.113.8",
        "2001:db8::1",
        "203.0.113.9",
    }


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (" 203.0.113.7 ", "203.0.113.7"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        # What a client sent of itself stands before what its proxy saw.
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("alice, 203.0.113.7", "203.0.113.7"),
        ("198.51.100.1,203.0.113.7,127.0.0.2", "203.0.113.7"),
        # Every address is one of a proxy: the farthest one asks on its own behalf.
        ("127.0.0.3, 127.0.0.2", "127.0.0.3"),
        ("", "127.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(
    header: str, client: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.0/29")
    with caplog.at_level(logging.INFO), serving() as server:
        assert server.ask(SEARCH, x_forwarded_for=header) == 200
    assert addresses(caplog, "service.access") == [client]


def test_headers_of_a_peer_that_is_not_named_are_ignored(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.9,127.0.0.2")
    with caplog.at_level(logging.INFO), serving() as server:
        assert server.ask(SEARCH, x_forwarded_for="203.0.113.7") == 200
    assert addresses(caplog, "service.access") == ["127.0.0.1"]


def test_texts_in_place_of_addresses_are_one_client_with_a_short_name_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    with caplog.at_level(logging.INFO), serving(**RATE) as server:
        texts = [f"client-{n}-" + 30_000 * "x" for n in range(4)]
        statuses = [server.ask(SEARCH, x_forwarded_for=text) for text in texts]
        assert statuses == [200] * 3 + [429]
        zones = [server.ask(SEARCH, x_forwarded_for=f"fe80::1%{n}") for n in range(4)]
        assert zones == [200] * 3 + [429]
        assert server.ask(ADD, x_forwarded_for=30_000 * "y") == 429
    for logger in ("service.access", "service.audit"):
        assert max(len(address) for address in addresses(caplog, logger)) == 64
    assert max(len(record.getMessage()) for record in caplog.records) < 1000


def test_a_key_is_no_reason_to_believe_a_client(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    key = add_key(tmp_path / "keys.json", "writer", ["write"])
    with caplog.at_level(logging.INFO), serving(keys_file=tmp_path / "keys.json") as server:
        assert server.ask(ADD, x_forwarded_for="203.0.113.7", x_api_key=key) == 201
    assert addresses(caplog, "service.audit") == ["127.0.0.1"]
