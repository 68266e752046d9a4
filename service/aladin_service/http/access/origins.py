"""Hosts and origins: protection against requests of foreign web pages.

A browser sends whatever a page requests, from inside the user's network. Two attacks by foreign
pages matter to a service that accepts requests without a key: DNS rebinding, where the page's own
host name resolves to the address of the service, so that the browser treats both as one origin; and
cross-site requests whose answers the page cannot read, but which cause work.

Starlette's own middleware for trusted hosts would refuse addresses and, as it knows no keys,
requests that have one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from aladin_network.errors import ConfigError
from aladin_service.http.errors import CrossSiteError

ANY_HOST = "*"

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::\d+)?")
_ORIGIN = re.compile(r"https?://[^/?#@\s]+")


def is_loopback(host: str) -> bool:
    """Return whether a listening name or address is reachable from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_host(header: str, allowed: Collection[str]) -> bool:
    """Return whether a Host header names this service.

    It does by an allowed name in lower case, by localhost and names below it, and by any
    address: only a name can be made to mean another machine.
    """
    if ANY_HOST in allowed:
        return True
    found = _HOST.fullmatch(header)
    if found is None:
        return False
    name = found[1].lower().removesuffix(".")
    if name in allowed or name == "localhost" or name.endswith(".localhost"):
        return True
    return _is_address(name.strip("[]"))


@lru_cache(maxsize=64)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_site(headers: Headers, allowed: Collection[str]) -> None:
    """Reject a request of a page of another site; its own, allowed ones and no page pass."""
    origin = headers.get("origin")
    if origin is not None and origin in allowed:
        return
    # No page can set this header, and it is correct even if a proxy has changed the Host header.
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise CrossSiteError(origin or site)
    elif origin is not None and not _is_own(origin, headers.get("host")):
        raise CrossSiteError(origin)


def _is_own(origin: str, host: str | None) -> bool:
    # HTTP/1.0 need not have a host, and the origin "null" names none.
    try:
        return bool(host) and urlsplit(origin).netloc == host
    except ValueError:  # a malformed address, such as http://[
        return False


def check_origins(origins: Collection[str]) -> None:
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"ALADIN_CORS_ORIGINS: expected origins such as https://example.org, got {origin!r}"
            )
