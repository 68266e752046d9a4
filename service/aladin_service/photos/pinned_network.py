"""Network connections to public addresses only.

The address that was checked is the one that is connected to; it is not resolved again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import httpcore

IpAddress = IPv4Address | IPv6Address

# NAT64 prefix, under which a translator maps IPv6 addresses to IPv4; the last four bytes are the
# IPv4 address.
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"), IPv6Network("::ffff:0:0:0/96"))
# Local-use NAT64 prefix of networks with a translator of their own; its target is unknown.
_LOCAL_TRANSLATED = IPv6Network("64:ff9b:1::/48")
# Global unicast: all of the IPv6 address space that has been assigned.
_GLOBAL_UNICAST = IPv6Network("2000::/3")


def is_public(address: IpAddress) -> bool:
    """Return whether an address can only be reached over the public internet.

    Not so for those of this machine, its network, its provider and its link, for groups, and for
    IPv6 addresses that embed such an IPv4 address.
    """
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not address.is_reserved
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    return (
        address in _GLOBAL_UNICAST
        and address.is_global
        and not address.is_multicast
        and address not in _LOCAL_TRANSLATED
        and address.scope_id is None
    )


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address embeds, or None."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


# Finds all addresses of a host.
Resolver = Callable[[str], Awaitable[Sequence[IpAddress]]]


async def system_addresses(host: str) -> Sequence[IpAddress]:
    """Resolve a host with the resolver of this machine, without blocking its event loop.

    Raises:
        OSError: If the host has no address, or it cannot be resolved.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(place[0]) for *_, place in found))


class PinnedNetwork(httpcore.AsyncNetworkBackend):
    """Resolves a host once, and connects to an address that it has checked.

    A host that has any address of another kind is refused altogether: it would be a matter of luck
    which one the next look-up gives. Certificates are still checked against the host's name.
    """

    def __init__(self, resolve: Resolver, network: httpcore.AsyncNetworkBackend) -> None:
        """Create the network without opening connections.

        Args:
            resolve: Function that finds the addresses of a host.
            network: Network backend that connects to one of the addresses.
        """
        self._resolve = resolve
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of a host's addresses that responds.

        Raises:
            httpcore.ConnectError: If the host has no address or a forbidden one, or no address
                responds.
        """
        try:
            addresses = await self._resolve(host)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error
        if not addresses or not all(is_public(address) for address in addresses):
            raise httpcore.ConnectError("not a public address")
        for address in addresses[:-1]:
            try:
                return await self._connect(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._connect(addresses[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: photos come from the internet.

        Raises:
            httpcore.ConnectError: If the method is called: Unix sockets are never allowed.
        """
        del timeout, socket_options
        raise httpcore.ConnectError(f"{path} is not a public address")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)

    async def _connect(
        self,
        address: IpAddress,
        port: int,
        timeout: float | None,
        local_address: str | None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        return await self._network.connect_tcp(
            str(address), port, timeout, local_address, socket_options
        )
