"""Whose word is taken for a client's address, and which words are addresses."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from aladin_network.errors import ConfigError
from aladin_service.http.access.proxies import ForwardedClient, TrustedProxies

pytestmark = pytest.mark.anyio

PROXY = "10.0.0.2"


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_nobody_is_trusted_unless_named(text: str) -> None:
    proxies = TrustedProxies(text)
    assert not proxies
    for peer in ("127.0.0.1", "::1", "", "unix:", None):
        assert peer not in proxies


def test_the_environment_names_them() -> None:
    assert not TrustedProxies.from_environment({})
    proxies = TrustedProxies.from_environment({"FORWARDED_ALLOW_IPS": "127.0.0.1, 10.0.0.0/8"})
    assert proxies
    assert "127.0.0.1" in proxies


def test_this_processs_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.7.7.7")
    assert "10.7.7.7" in TrustedProxies.from_environment()


@pytest.mark.parametrize(
    ("text", "peer", "trusted"),
    [
        ("10.0.0.2", "10.0.0.2", True),
        ("10.0.0.2", "10.0.0.3", False),
        ("10.0.0.2", "::ffff:10.0.0.2", True),
        ("10.0.0.2, 192.168.0.0/16", "192.168.7.7", True),
        ("10.0.0.2, 192.168.0.0/16", "192.169.0.1", False),
        ("2001:db8::/32", "2001:0db8:0::1", True),
        ("2001:db8::/32", "10.0.0.2", False),
        ("10.0.0.2", "testclient", False),
        ("10.0.0.2", None, False),
        ("*", "10.0.0.2", True),
        ("10.0.0.2,*", "10.0.0.3", True),
        ("*", None, True),
    ],
)
def test_addresses_and_networks(text: str, peer: str | None, trusted: bool) -> None:
    proxies = TrustedProxies(text)
    assert proxies
    assert (peer in proxies) is trusted


@pytest.mark.parametrize("entry", ["proxy.example", "10.0.0.1/8", "10.0.0", "a" * 1000])
def test_what_is_no_address_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="FORWARDED_ALLOW_IPS: expected IP addresses") as error:
        TrustedProxies(f"10.0.0.2,{entry}")
    assert entry[:100] in str(error.value)
    assert len(str(error.value)) < 2500


@pytest.mark.parametrize(
    ("header", "client"),
    [
        ("203.0.113.7", "203.0.113.7"),
        (" 203.0.113.7 ", "203.0.113.7"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        # What a client sent of itself stands before what its proxy saw.
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("alice, 203.0.113.7", "203.0.113.7"),
        ("198.51.100.1,203.0.113.7,10.0.0.2", "203.0.113.7"),
        # Every address is one of a proxy: the farthest one asks on its own behalf.
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(header: str, client: str) -> None:
    assert TrustedProxies("10.0.0.0/29").client_of(PROXY, header) == client


@pytest.mark.parametrize(
    "header",
    [
        "",
        "alice",
        "unknown",
        "203.0.113.7, alice",
        "203.0.113.7, ",
        "203.0.113.256",
        "203.0.113.7:port",
        "203.0.113.7:",
        "[2001:db8::1",
        "[2001:db8::1]4711",
        "[2001:db8::1]:",
        "[2001:db8::1]:x",
        "2001:db8::1%" + "z" * 60_000,
        "fe80::1%eth0",
        "203.0.113.7\u00a0;",
    ],
)
@pytest.mark.parametrize("named", ["10.0.0.0/29", "*"])
def test_of_what_is_no_address_the_peers_is_taken(header: str, named: str) -> None:
    assert TrustedProxies(named).client_of(PROXY, header) == PROXY
    assert TrustedProxies(named).client_of(None, header) is None


def test_what_stands_before_a_text_that_is_no_address_is_nobodys_word() -> None:
    assert TrustedProxies("10.0.0.0/29").client_of(PROXY, "203.0.113.7, alice, 10.0.0.3") == PROXY


def test_where_every_address_is_trusted_the_nearest_proxy_is_believed() -> None:
    assert TrustedProxies("*").client_of(PROXY, "198.51.100.1, 203.0.113.7") == "203.0.113.7"


async def seen(proxies: str, scope: Scope) -> Scope:
    """Return the scope that an application gets behind `ForwardedClient`."""
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        scopes.append(scope)

    async def nothing(*_: object) -> Any:
        pytest.fail("nothing is received and nothing is sent")

    await ForwardedClient(app, TrustedProxies(proxies))(scope, nothing, nothing)
    (found,) = scopes
    return found


def request(*headers: tuple[bytes, bytes], peer: tuple[str, int] | None = (PROXY, 4711)) -> Scope:
    """Return the scope of a request."""
    return {"type": "http", "client": peer, "scheme": "http", "headers": list(headers)}


async def test_headers_of_a_proxy_are_taken() -> None:
    scope = await seen(
        PROXY,
        request(
            (b"host", b"a"),
            (b"x-forwarded-for", b"198.51.100.1"),
            (b"x-forwarded-for", b"203.0.113.7"),
            (b"x-forwarded-proto", b"https"),
        ),
    )
    assert scope["client"] == ("203.0.113.7", 0)
    assert scope["scheme"] == "https"


async def test_headers_of_others_are_not() -> None:
    headers = ((b"x-forwarded-for", b"203.0.113.7"), (b"x-forwarded-proto", b"https"))
    scope = await seen("10.0.0.9", request(*headers))
    assert scope["client"] == (PROXY, 4711)
    assert scope["scheme"] == "http"


async def test_a_proxy_that_says_nothing_is_the_client() -> None:
    scope = await seen(PROXY, request((b"host", b"a")))
    assert scope["client"] == (PROXY, 4711)
    scope = await seen(PROXY, request((b"x-forwarded-for", b"alice")))
    assert scope["client"] == (PROXY, 4711)


@pytest.mark.parametrize("scheme", [b"wss", b"ftp", b"https, http", b"\xff", b""])
async def test_a_scheme_is_http_or_https(scheme: bytes) -> None:
    scope = await seen(PROXY, request((b"x-forwarded-proto", scheme)))
    assert scope["scheme"] == "http"


async def test_a_peer_without_an_address_may_be_trusted_too() -> None:
    headers = (b"x-forwarded-for", b"203.0.113.7")
    scope = await seen("*", request(headers, peer=None))
    assert scope["client"] == ("203.0.113.7", 0)
    scope = await seen(PROXY, request(headers, peer=None))
    assert scope["client"] is None


async def test_what_is_no_request_passes() -> None:
    assert await seen("*", {"type": "lifespan"}) == {"type": "lifespan"}
