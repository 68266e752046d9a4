"""Hosts and origins."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from aladin_network.errors import ConfigError
from aladin_service.http.access.origins import check_origins, check_site, is_loopback, is_own_host
from aladin_service.http.errors import CrossSiteError

OWN_HOSTS = (
    *("localhost", "localhost:8000", "LOCALHOST.", "app.localhost:80", "127.0.0.1:8000"),
    *("127.1.2.3", "[::1]:8000", "192.168.1.7:8000", "[2001:db8::1]", "search.example.org"),
    "Search.Example.Org:443",
)
FOREIGN_HOSTS = (
    *("", "evil.example", "evil.example:8000", "localhost.evil.example", "notlocalhost"),
    *("127.0.0.1.evil.example", "evil.example#localhost", "localhost:80:80", "localhost:evil"),
    *("[::1", "::1", "2130706433", "x.search.example.org"),
)


@pytest.mark.parametrize(
    ("header", "own"),
    [*((host, True) for host in OWN_HOSTS), *((host, False) for host in FOREIGN_HOSTS)],
)
def test_addresses_localhost_and_named_hosts_are_our_own(header: str, own: bool) -> None:
    assert is_own_host(header, {"search.example.org"}) is own
    assert is_own_host(header, {"*"})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *((name, True) for name in ("127.0.0.1", "127.0.0.2", "::1", "localhost", "Localhost")),
        *((name, False) for name in ("0.0.0.0", "::", "", "192.168.1.7", "example.org", "127.1")),
    ],
)
def test_loopback_addresses_are_reached_from_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


OWN, FRIEND, EVIL = "http://127.0.0.1:8000", "https://friend.example", "http://evil.example"


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({}, None),
        ({"origin": OWN}, None),
        ({"origin": "https://127.0.0.1:8000"}, None),  # a proxy has taken TLS off
        ({"origin": FRIEND}, None),
        ({"origin": FRIEND, "sec-fetch-site": "cross-site"}, None),
        ({"origin": "https://search.example", "sec-fetch-site": "same-origin"}, None),
        ({"sec-fetch-site": "none"}, None),
        ({"host": ""}, None),
        ({"origin": EVIL}, EVIL),
        ({"origin": "http://127.0.0.1:3000"}, "http://127.0.0.1:3000"),
        ({"origin": "http://127.0.0.1"}, "http://127.0.0.1"),
        ({"origin": "null"}, "null"),
        ({"origin": "null", "host": ""}, "null"),
        ({"origin": EVIL, "host": ""}, EVIL),
        ({"origin": "http://["}, "http://["),
        ({"origin": ""}, ""),
        ({"origin": "http://friend.example"}, "http://friend.example"),
        ({"origin": "http://127.0.0.1:8000@evil.example"}, "http://127.0.0.1:8000@evil.example"),
        ({"origin": OWN, "sec-fetch-site": "same-site"}, OWN),
        ({"origin": EVIL, "sec-fetch-site": "cross-site"}, EVIL),
        ({"sec-fetch-site": "cross-site"}, "cross-site"),
    ],
)
def test_pages_of_other_sites_are_refused_by_name(
    headers: dict[str, str], named: str | None
) -> None:
    given = Headers({"host": "127.0.0.1:8000"} | headers)
    if named is None:
        check_site(given, {FRIEND})
        return
    with pytest.raises(CrossSiteError) as refused:
        check_site(given, {FRIEND})
    assert repr(named) in str(refused.value)


def test_without_a_host_header_no_origin_is_our_own() -> None:
    check_site(Headers({}), ())
    with pytest.raises(CrossSiteError):
        check_site(Headers({"origin": "null"}), ())


@pytest.mark.parametrize(
    "wrong", ["*", "null", "example.org", "https://example.org/", "https://*/x", ""]
)
def test_a_setting_of_no_origin_is_refused_by_name(wrong: str) -> None:
    check_origins(["https://example.org", "http://localhost:3000"])
    with pytest.raises(ConfigError) as failure:
        check_origins(["https://example.org", wrong])
    assert str(failure.value) == (
        f"ALADIN_CORS_ORIGINS: expected origins such as https://example.org, got {wrong!r}"
    )
