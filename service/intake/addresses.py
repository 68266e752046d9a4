"""Which network addresses belong to the public internet."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network

IpAddress = IPv4Address | IPv6Address

# Where a translator turns an address of the new kind into one of the old; the last four bytes.
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"), IPv6Network("::ffff:0:0:0/96"))
# Of networks that have a translator of their own; there is no telling where it leads.
_LOCAL_TRANSLATED = IPv6Network("64:ff9b:1::/48")
# Global unicast: all that is handed out of the IPv6 address space.
_GLOBAL_UNICAST = IPv6Network("2000::/3")


def is_public(address: IpAddress) -> bool:
    """Return whether an address can only be reached over the public internet.

    Not so for those of this machine, its network, its provider and its link, for groups, and for
    addresses of the new kind behind which there is such a one of the old.
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
    """Return the address of the old kind that one of the new kind stands for; None for none."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
