"""Rate limits of clients: token buckets, kept in the process that answers HTTP.

Each request costs one token; requests that hold several queries or items cost more.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv4Address

from fastapi import Request

from aladin_service.http.errors import RateLimitedError

# Number of remembered clients without a key. A forgotten client starts with a full bucket again, so
# an attacker needs this many addresses to evade the limit.
_MAX_CLIENTS = 10_000

Clock = Callable[[], float]


class TokenBucket:
    """Holds up to `burst` tokens and gains `per_s` tokens per second."""

    __slots__ = ("_clock", "_filled_s", "_tokens", "burst", "per_s")

    def __init__(self, per_s: float, burst: int, clock: Clock = time.monotonic) -> None:
        self.per_s = per_s
        self.burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_s = clock()

    def take(self, count: int, paid: int = 0) -> None:
        """Take tokens.

        What costs more than the bucket can hold waits until it is full, and leaves a debt.
        """
        self._fill()
        missing = min(count + paid, self.burst) - paid - self._tokens
        if missing > 0:
            raise RateLimitedError((missing + paid) / self.per_s)
        self._tokens -= count

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._filled_s) * self.per_s)
        self._filled_s = now


class ClientBuckets:
    """The buckets of clients without a key, by address."""

    def __init__(self, per_s: float, burst: int, clock: Clock = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def of(self, address: str) -> TokenBucket:
        who = client_network(address)
        bucket = self._buckets.get(who)
        if bucket is None:
            bucket = self._buckets[who] = TokenBucket(self._per_s, self._burst, self._clock)
            if len(self._buckets) > _MAX_CLIENTS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(who)
        return bucket


def client_network(address: str) -> str:
    """Return the network of an address: one customer has a whole /64 of IPv6.

    All texts that are no addresses are one client: a proxy may pass on what a client wrote.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(ip, IPv4Address):
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(ip) >> 64 << 64, 64)))


def charge(request: Request, count: int, paid: int = 1) -> None:
    """Charge a request with several queries or items as much as individual requests.

    The request itself has cost 1 when it reaches its route. One that costs more than its client's
    burst passes when the bucket is full, and leaves a debt.
    """
    limit: TokenBucket | None = request.state.limit
    if limit is not None and count > paid:
        limit.take(count - paid, paid=paid)
