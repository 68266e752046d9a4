"""Proxies in front of the service, and the addresses of clients behind them.

Whoever connects can send `X-Forwarded-For`, so the header counts only in requests that come from a
proxy which the environment variable FORWARDED_ALLOW_IPS names.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from starlette.types import ASGIApp, Receive, Scope, Send

from aladin_network.errors import ConfigError

_VARIABLE = "FORWARDED_ALLOW_IPS"
_ANY = "*"

_SCHEMES = frozenset({"http", "https"})


class TrustedProxies:
    """Addresses whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted."""

    def __init__(self, text: str = "") -> None:
        """Read the addresses.

        Args:
            text: IP addresses and networks, separated by commas, or ``*`` for every address. No
                proxy is trusted if it is empty.

        Raises:
            ConfigError: If an entry is neither an IP address nor a network.
        """
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        self._any = _ANY in entries
        self._networks: list[IPv4Network | IPv6Network] = []
        for entry in entries:
            if entry == _ANY:
                continue
            try:
                self._networks.append(ipaddress.ip_network(entry))
            except ValueError as error:
                raise ConfigError(
                    f"{_VARIABLE}: expected IP addresses and networks separated by commas, such as "
                    f"10.0.0.2,192.168.0.0/16, or *, got {entry[:100]!r}: {error}"
                ) from None

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ) -> TrustedProxies:
        """Read the addresses from FORWARDED_ALLOW_IPS.

        Args:
            variables: Environment variables.

        Raises:
            ConfigError: If an entry is neither an IP address nor a network.
        """
        return cls(variables.get(_VARIABLE, ""))

    def __bool__(self) -> bool:
        """Return whether any proxy is trusted."""
        return self._any or bool(self._networks)

    def __contains__(self, peer: object) -> bool:
        """Return whether a peer is a trusted proxy.

        Args:
            peer: IP address, or None for a peer without one, as that of a Unix socket.
        """
        if self._any:
            return True
        ip = _parse(peer) if isinstance(peer, str) else None
        return ip is not None and self._names(ip)

    def client_of(self, peer: str | None, forwarded_for: str) -> str | None:
        """Return the address of the client behind a trusted proxy.

        Each proxy appends the address that it sees to the header, and what stands before it may be
        the client's invention. The client is therefore the last address that is no trusted proxy.
        If every address is trusted (``*``), it is the last one, which the proxy itself wrote.

        Args:
            peer: Address of the proxy.
            forwarded_for: All values of `X-Forwarded-For`, joined by commas.

        Returns:
            An IP address in its canonical form, or `peer` if the header holds something else in
            the place of the address.
        """
        found: IPv4Address | IPv6Address | None = None
        for entry in reversed(forwarded_for.split(",")):
            found = _parse(_without_port(entry.strip()))
            if found is None:
                return peer
            if self._any or not self._names(found):
                break
        return peer if found is None else str(found)

    def _names(self, ip: IPv4Address | IPv6Address) -> bool:
        return any(ip in network for network in self._networks)


class ForwardedClient:
    """Sets the client's own address and scheme in requests of trusted proxies."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies) -> None:
        """Wrap an application."""
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            client: tuple[str, int] | None = scope.get("client")
            peer = None if client is None else client[0]
            if peer in self._proxies:
                self._take_headers(scope, peer)
        await self._app(scope, receive, send)

    def _take_headers(self, scope: Scope, peer: str | None) -> None:
        forwarded_for: list[str] = []
        for name, value in scope["headers"]:
            if name == b"x-forwarded-for":
                forwarded_for.append(value.decode("latin-1"))
            elif name == b"x-forwarded-proto":
                scheme = value.decode("latin-1").strip().lower()
                if scheme in _SCHEMES:
                    scope["scheme"] = scheme
        if forwarded_for:
            address = self._proxies.client_of(peer, ",".join(forwarded_for))
            if address is not None and address != peer:
                scope["client"] = (address, 0)  # the client's port is not in the header


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address, or None if the text is not one.

    A zone (``fe80::1%eth0``) may be any text of any length, and means nothing on another machine.
    """
    if "%" in text:
        return None
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip


def _without_port(text: str) -> str:
    """Return the address in ``1.2.3.4:5``, ``[2001:db8::1]:5``, ``[2001:db8::1]`` or a bare one."""
    if text.startswith("["):
        address, bracket, port = text[1:].partition("]")
        is_port = not port or (port[0] == ":" and port[1:].isdecimal())
        return address if bracket and is_port else ""
    if text.count(":") == 1:
        address, _, port = text.partition(":")
        return address if port.isdecimal() else ""
    return text
