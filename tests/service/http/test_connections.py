"""Which connections are served, by their clients and their number, and who is taken for whom."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from aladin_network.errors import ConfigError
from aladin_service.http.access.policy import make_policy
from aladin_service.http.app import create_app
from aladin_service.http.connections import PROBE_PLACES, ConnectionLimits, trusted_proxies
from aladin_service.observe.logs import FIELDS
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from tests.service.http.conftest import Clock, FakeWorkers, listening


class Connection:
    """Notes that it was closed."""

    closed = False

    def close_as_full(self) -> None:
        assert not self.closed
        self.closed = True


def limits_of(
    in_all: int, per_client: int, proxies: str = "", clock: Clock | None = None
) -> ConnectionLimits:
    """Return limits without connections."""
    settings = ServiceSettings(max_connections=in_all, max_connections_per_client=per_client)
    trusted = trusted_proxies({"FORWARDED_ALLOW_IPS": proxies})
    return ConnectionLimits(settings, trusted, clock or Clock())


def enter(limits: ConnectionLimits, peer: str | None, count: int = 1) -> list[Connection]:
    """Open connections, all of which have to find the same place."""
    made = [Connection() for _ in range(count)]
    assert len({limits.enter(each, peer) for each in made}) == 1
    return made


def place(limits: ConnectionLimits, peer: str | None) -> str:
    """Open a connection, close it, and return where it was."""
    connection = Connection()
    found = limits.enter(connection, peer)
    limits.leave(connection)
    return found


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ("2001:db8::1", "2001:db8::ffff:0:0:1", "2001:db8:0:1::1"),
        ("::ffff:10.0.0.1", "10.0.0.1", "::ffff:10.0.0.2"),
    ],
)
def test_a_client_is_an_address_or_a_network(one: str, same: str, other: str) -> None:
    limits = limits_of(100, 2)
    first, _ = enter(limits, one, 2)
    assert place(limits, one) == place(limits, same) == "probe"
    assert place(limits, other) == "served"
    limits.leave(first)
    assert place(limits, same) == "served"


def test_all_together_are_limited_too() -> None:
    limits = limits_of(3, 2)
    enter(limits, "10.0.0.1", 2)
    (last,) = enter(limits, "10.0.0.2")
    for peer in ("10.0.0.3", "10.0.0.2", None):
        assert place(limits, peer) == "probe"
    limits.leave(last)
    limits.leave(last)  # a connection may be closed twice
    assert place(limits, "10.0.0.3") == "served"
    enter(limits, "10.0.0.3")
    assert place(limits, "10.0.0.4") == "probe"


@pytest.mark.parametrize(
    ("proxies", "peer"), [("10.0.0.9", "10.0.0.9"), ("10.0.0.9", None), ("0.0.0.0/0", "10.0.0.1")]
)
def test_proxies_and_unix_sockets_have_no_limit_of_their_own(
    proxies: str, peer: str | None
) -> None:
    limits = limits_of(5, 1, proxies)
    enter(limits, peer, 5)
    assert place(limits, peer) == "probe"


def test_whoever_has_most_of_the_probes_places_loses_the_oldest() -> None:
    limits = limits_of(1, 1)
    enter(limits, "10.0.0.1")
    (probe,) = enter(limits, "10.0.0.2")
    flood = enter(limits, "10.0.0.1", PROBE_PLACES - 1)
    assert not any(each.closed for each in flood)
    more = enter(limits, "10.0.0.1", 30)
    assert [each.closed for each in flood] == [True] * 30 + [False] * (PROBE_PLACES - 31)
    (another,) = enter(limits, "2001:db8::7")
    assert (flood[30].closed, flood[31].closed) == (True, False)
    # Those that were closed have left, so as many places are free as there are connections gone.
    for each in flood[31:]:
        limits.leave(each)
    enter(limits, "10.0.0.1", PROBE_PLACES - 32)
    assert not any(each.closed for each in (probe, another, *more))


def test_many_clients_share_the_probes_places_by_age() -> None:
    limits = limits_of(1, 1)
    enter(limits, "10.0.0.1")
    first, second = (enter(limits, f"10.1.0.{number}")[0] for number in range(2))
    for number in range(2, PROBE_PLACES):
        enter(limits, f"10.1.0.{number}")
    enter(limits, "10.2.0.1")
    assert (first.closed, second.closed) == (True, False)


def test_refusals_are_told_once_a_minute_with_their_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    limits = limits_of(3, 2, clock=clock)
    with caplog.at_level(logging.WARNING):
        enter(limits, "10.0.0.1", 2)
        enter(limits, "10.0.0.1", 50)
        (told,) = caplog.messages
        assert "10.0.0.1 has 2 connections" in told and "FORWARDED_ALLOW_IPS" in told
        caplog.clear()
        enter(limits, "10.0.0.2")
        for passed_s, lines in ((59.9, 0), (0.1, 1)):
            clock.now_s += passed_s
            place(limits, "10.0.0.3")
            assert len(caplog.messages) == lines
    assert "3 connections are open (ALADIN_MAX_CONNECTIONS)" in caplog.text


# Whoever reaches the port could name itself if every peer were trusted.
@pytest.mark.parametrize("entry", ["*", "proxy.example", "10.0.0.1/8", "10.0.0", "a" * 1000])
def test_proxies_that_are_no_addresses_are_refused(entry: str) -> None:
    for variables in ({}, {"FORWARDED_ALLOW_IPS": ""}, {"FORWARDED_ALLOW_IPS": " , "}):
        assert trusted_proxies(variables) == []  # nobody unless named
    with pytest.raises(ConfigError, match="FORWARDED_ALLOW_IPS: expected IP addresses") as error:
        trusted_proxies({"FORWARDED_ALLOW_IPS": f"10.0.0.2,{entry}"})
    assert entry[:100] in str(error.value)
    assert len(str(error.value)) < 500


SEARCH = ("POST", "/v1/search/images", json.dumps({"text": "a dog"}))
ADD = ("POST", "/v1/items/texts", json.dumps({"id": "new", "text": "a dog"}))
RATE = {"anonymous_requests_per_s": 0.001, "anonymous_burst": 3}


Ask = Callable[[tuple[str, str, str], str], int]
Clients = Callable[[str], list[str]]


@pytest.fixture
def clients(caplog: pytest.LogCaptureFixture) -> Clients:
    """The clients that the lines of a logger name."""
    caplog.set_level(logging.INFO)

    def named(logger: str) -> list[str]:
        lines = (line for line in caplog.records if line.name == f"service.{logger}")
        return [getattr(line, FIELDS)["client"] for line in lines]

    return named


@contextmanager
def serving(proxies: str, **settings: Any) -> Generator[Ask]:
    """Serve behind proxies; gives what asks for a client, and returns the answer's status."""
    made = ServiceSettings(**settings)
    app = create_app(FakeWorkers(), made, Metrics(), policy=make_policy(made))
    with listening(app, made, proxies) as (port, _):

        def ask(what: tuple[str, str, str], forwarded: str) -> int:
            method, path, body = what
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            headers = {"content-type": "application/json", "x-forwarded-for": forwarded}
            connection.request(method, path, body, headers | {"x-real-ip": "alice"})
            with closing(connection), connection.getresponse() as response:
                response.read()
                return response.status

        yield ask


def test_a_client_cannot_name_itself(clients: Clients) -> None:
    with serving("10.0.0.9,127.0.0.2", **RATE) as ask:
        assert [ask(SEARCH, f"10.0.0.{n}") for n in range(6)] == [200] * 3 + [429] * 3
        assert ask(ADD, "alice") == 429
    assert clients("audit") == ["127.0.0.1"]
    assert clients("access") == ["127.0.0.1"] * 7


def test_behind_a_named_proxy_clients_are_told_apart(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.7.7.7, 192.168.0.0/16,127.0.0.1")
    proxies = ",".join(map(str, trusted_proxies()))
    assert proxies == "10.7.7.7/32,192.168.0.0/16,127.0.0.1/32"
    with serving(proxies, **RATE) as ask:
        for client in ("203.0.113.7", "203.0.113.8", "2001:db8::1"):
            # What the client sent itself stands first, and does not make it another one.
            statuses = [ask(SEARCH, f"10.0.0.{n}, {client}") for n in range(4)]
            assert statuses == [200, 200, 200, 429]
        assert ask(ADD, "203.0.113.9:4711") == 201
    assert clients("audit") == ["203.0.113.9"]
    assert len(set(clients("access"))) == 4


def test_the_client_is_the_last_address_that_is_no_proxy(clients: Clients) -> None:
    expected = {
        " 203.0.113.7 ": "203.0.113.7",
        "203.0.113.7:4711": "203.0.113.7",
        "[2001:db8::1]:4711": "2001:db8::1",
        # What a client sent of itself stands before what its proxy saw.
        "alice, 203.0.113.7": "203.0.113.7",
        "198.51.100.1,203.0.113.7,127.0.0.2": "203.0.113.7",
        # Every address is one of a proxy: the farthest one asks on its own behalf.
        "127.0.0.3, 127.0.0.2": "127.0.0.3",
        "": "127.0.0.1",
    }
    with serving("127.0.0.0/29") as ask:
        assert {ask(SEARCH, header) for header in expected} == {200}
    assert clients("access") == list(expected.values())


def test_texts_in_place_of_addresses_are_one_client_with_a_short_name_in_the_log(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    with serving("127.0.0.1", **RATE) as ask:
        for name in ("client-{}-" + 30_000 * "x", "fe80::1%{}"):
            statuses = [ask(SEARCH, name.format(number)) for number in range(4)]
            assert statuses == [200] * 3 + [429]
        assert ask(ADD, 30_000 * "y") == 429
    assert [max(map(len, clients(logger))) for logger in ("access", "audit")] == [64, 64]
    assert max(map(len, caplog.messages)) < 1000
