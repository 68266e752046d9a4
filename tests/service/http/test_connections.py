"""Which connections are served, by their clients and by how many there are."""

from __future__ import annotations

import logging

import pytest

from aladin_network.errors import ConfigError
from aladin_service.http.connections import PROBE_PLACES, ConnectionLimits, trusted_proxies
from aladin_service.settings import ServiceSettings


class Connection:
    """Notes that it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def close_as_full(self) -> None:
        """Close."""
        assert not self.closed
        self.closed = True


class Clock:
    """Seconds that pass when the test says so."""

    now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def limits_of(
    in_all: int, per_client: int, proxies: str = "", clock: Clock | None = None
) -> ConnectionLimits:
    """Return limits without connections."""
    settings = ServiceSettings(max_connections=in_all, max_connections_per_client=per_client)
    return ConnectionLimits(
        settings, trusted_proxies({"FORWARDED_ALLOW_IPS": proxies}), clock or Clock()
    )


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


@pytest.mark.parametrize("peer", ["10.0.0.9", None])
def test_proxies_and_unix_sockets_have_no_limit_of_their_own(peer: str | None) -> None:
    limits = limits_of(5, 1, "10.0.0.9")
    enter(limits, peer, 5)
    assert place(limits, peer) == "probe"


def test_where_every_address_is_a_proxy_only_the_sum_is_limited() -> None:
    limits = limits_of(3, 1, "0.0.0.0/0")
    enter(limits, "10.0.0.1", 3)
    assert place(limits, "10.0.0.1") == "probe"


def test_whoever_has_most_of_the_probes_places_loses_the_oldest() -> None:
    limits = limits_of(1, 1)
    enter(limits, "10.0.0.1")
    (probe,) = enter(limits, "10.0.0.2")
    flood = enter(limits, "10.0.0.1", PROBE_PLACES - 1)
    assert not any(each.closed for each in flood)
    more = enter(limits, "10.0.0.1", 30)
    assert [each.closed for each in flood] == [True] * 30 + [False] * (PROBE_PLACES - 31)
    (another,) = enter(limits, "2001:db8::7")
    assert flood[30].closed
    assert not flood[31].closed
    assert not any(each.closed for each in (probe, another, *more))
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
    assert first.closed
    assert not second.closed


def test_what_is_refused_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    limits = limits_of(3, 2, clock=clock)
    with caplog.at_level(logging.WARNING):
        enter(limits, "10.0.0.1", 2)
        enter(limits, "10.0.0.1", 50)
        assert [record.getMessage() for record in caplog.records] == [
            "rejecting connections except probes: 10.0.0.1 has 2 connections open "
            "(ALADIN_MAX_CONNECTIONS_PER_CLIENT; FORWARDED_ALLOW_IPS exempts proxies)"
        ]
        caplog.clear()
        enter(limits, "10.0.0.2")
        clock.now_s += 59.9
        place(limits, "10.0.0.3")
        assert not caplog.records
        clock.now_s += 0.1
        place(limits, "10.0.0.3")
    assert [record.getMessage() for record in caplog.records] == [
        "rejecting connections except probes: 3 connections are open (ALADIN_MAX_CONNECTIONS)"
    ]


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_nobody_is_trusted_unless_named(text: str) -> None:
    assert trusted_proxies({"FORWARDED_ALLOW_IPS": text}) == []
    assert trusted_proxies({}) == []


def test_proxies_of_this_processs_environment_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.7.7.7, 192.168.0.0/16,2001:db8::/32")
    names = [str(network) for network in trusted_proxies()]
    assert names == ["10.7.7.7/32", "192.168.0.0/16", "2001:db8::/32"]


# Whoever reaches the port could name itself if every peer were trusted.
@pytest.mark.parametrize("entry", ["*", "proxy.example", "10.0.0.1/8", "10.0.0", "a" * 1000])
def test_proxies_that_are_no_addresses_are_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="FORWARDED_ALLOW_IPS: expected IP addresses") as error:
        trusted_proxies({"FORWARDED_ALLOW_IPS": f"10.0.0.2,{entry}"})
    assert entry[:100] in str(error.value)
    assert len(str(error.value)) < 500
