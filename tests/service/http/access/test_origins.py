"""Hosts and origins."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from aladin_network.errors import ConfigError
from aladin_service.http.access.origins import (
    check_origins,
    foreign_origin,
    is_loopback,
    is_own_host,
)


@pytest.mark.parametrize(
    "header",
    [
        "localhost",
        "localhost:8000",
        "LOCALHOST.",
        "app.localhost:80",
        "127.0.0.1:8000",
        "127.1.2.3",
        "[::1]:8000",
        "192.168.1.7:8000",
        "[2001:db8::1]",
        "search.example.org",
        "Search.Example.Org:443",
    ],
)
def test_hosts_that_this_service_is(header: str) -> None:
    assert is_own_host(header, {"search.example.org"})


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notlocalhost",
        "evil.example#localhost",
        "localhost:80:80",
        "localhost:evil",
        "[::1",
        "::1",
        "2130706433",
        "x.search.example.org",
    ],
)
def test_hosts_that_it_is_not(header: str) -> None:
    assert not is_own_host(header, {"search.example.org"})
    assert is_own_host(header, {"*"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost", "Localhost"])
def test_addresses_of_this_machine_alone(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.7", "example.org", "127.1"])
def test_addresses_that_others_reach(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "https://127.0.0.1:8000"},  # a proxy has taken TLS off
        {"origin": "https://friend.example"},
        {"origin": "https://friend.example", "sec-fetch-site": "cross-site"},
        {"origin": "https://search.example", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
def test_pages_that_may_send_requests(headers: dict[str, str]) -> None:
    given = Headers({"host": "127.0.0.1:8000"} | headers)
    assert foreign_origin(given, {"https://friend.example"}) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://127.0.0.1"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": ""},
        {"origin": "http://friend.example"},
        {"origin": "http://127.0.0.1:8000@evil.example"},
        {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-site"},
        {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_pages_that_may_not(headers: dict[str, str]) -> None:
    given = Headers({"host": "127.0.0.1:8000"} | headers)
    assert foreign_origin(given, {"https://friend.example"}) is not None


def test_origins_of_a_setting() -> None:
    check_origins(["https://example.org", "http://localhost:3000"])
    for wrong in ("*", "null", "example.org", "https://example.org/", "https://*/x", ""):
        with pytest.raises(ConfigError, match="ALADIN_CORS_ORIGINS"):
            check_origins(["https://example.org", wrong])


@pytest.mark.parametrize("host", [{}, {"host": ""}])
def test_without_a_host_no_origin_is_our_own(host: dict[str, str]) -> None:
    for origin in ("null", "http://evil.example"):
        assert foreign_origin(Headers(host | {"origin": origin}), ()) == origin
    assert foreign_origin(Headers(host), ()) is None


def test_the_page_is_named_by_its_origin_else_by_what_the_browser_says_of_it() -> None:
    given = {"host": "a", "sec-fetch-site": "cross-site"}
    assert foreign_origin(Headers(given), ()) == "cross-site"
    assert foreign_origin(Headers(given | {"origin": "http://b"}), ()) == "http://b"


def test_an_origin_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError) as failure:
        check_origins(["https://example.org", "example.org"])
    assert str(failure.value) == (
        "ALADIN_CORS_ORIGINS: expected origins such as https://example.org, got 'example.org'"
    )
