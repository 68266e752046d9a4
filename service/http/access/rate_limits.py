"""How often a client may ask: a bucket of tokens each, one token a request."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

from fastapi import Request

from service.http.access.errors import RateLimitedError

# Clients without a key that are remembered. Whoever is forgotten starts with a full bucket again,
# so an attacker needs this many addresses to get around the limit.
_MAX_CLIENTS = 10_000

Clock = Callable[[], float]


class TokenBucket:
    """Holds up to `burst` tokens and gets `per_s` new ones a second."""

    __slots__ = ("_clock", "_filled_s", "_tokens", "burst", "per_s")

    def __init__(self, per_s: float, burst: int, clock: Clock = time.monotonic) -> None:
        """Start full.

        Args:
            per_s: above 0.
            burst: at least 1.
            clock: in seconds.
        """
        self.per_s = per_s
        self.burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_s = clock()

    def take(self, count: int, paid: int = 0) -> None:
        """Take tokens.

        What costs more than the bucket can hold waits until it is full, and leaves a debt.

        Args:
            count: at least 1.
            paid: tokens that the same request has taken before; they count as part of its cost.

        Raises:
            RateLimitedError: there are too few; none is taken. The time in it is that until the
                whole request passes if it is sent again.
        """
        self._fill()
        missing = min(count + paid, self.burst) - paid - self._tokens
        if missing > 0:
            raise RateLimitedError((missing + paid) / self.per_s)
        self._tokens -= count

    def note(self, count: int) -> None:
        """Take tokens that were given elsewhere, be there as many or not."""
        self._fill()
        self._tokens -= count

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._filled_s) * self.per_s)
        self._filled_s = now


class RateStore(Protocol):
    """Keeps the buckets that several services share."""

    async def take(self, who: str, bucket: TokenBucket, count: int, paid: int = 0) -> None:
        """Take tokens from a shared bucket.

        Args:
            who: names the bucket.
            bucket: what this service counts alone; it has the rate and the burst of the shared one.
            count: at least 1.
            paid: tokens that the same request has taken before, see `TokenBucket.take`.

        Raises:
            RateLimitedError: there are too few; none is taken.
        """
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


class RateLimit(NamedTuple):
    """What limits the client of one request.

    Attributes:
        who: the client, the same to all services.
        bucket: of this service.
        store: of all services together; None: this one counts alone.
    """

    who: str
    bucket: TokenBucket
    store: RateStore | None

    async def take(self, count: int, paid: int = 0) -> None:
        """Take tokens, see `TokenBucket.take`."""
        if self.store is None:
            self.bucket.take(count, paid)
        else:
            await self.store.take(self.who, self.bucket, count, paid)


class ClientBuckets:
    """The buckets of clients that have no key, by their addresses."""

    def __init__(self, per_s: float, burst: int, clock: Clock = time.monotonic) -> None:
        """Know no client yet."""
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def of(self, address: str) -> TokenBucket:
        """Return a client's bucket."""
        who = client_network(address)
        bucket = self._buckets.get(who)
        if bucket is None:
            bucket = self._buckets[who] = TokenBucket(self._per_s, self._burst, self._clock)
            if len(self._buckets) > _MAX_CLIENTS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(who)
        return bucket


def client_network(address: str) -> str:
    """Return whom an address stands for: one customer has a whole /64 of IPv6."""
    if ":" not in address:
        return address
    try:
        ip = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(ip) >> 64 << 64, 64)))


async def charge(request: Request, count: int) -> None:
    """Make a request that holds several queries or items cost as much as they would one by one.

    The request itself has cost 1 when it reaches its route. One that costs more than its client's
    burst passes when the bucket is full, and leaves a debt.

    Args:
        request: on its way through a route.
        count: queries or items in it.

    Raises:
        RateLimitedError: its client may not ask for so many now.
    """
    limit: RateLimit | None = request.state.limit
    if limit is not None and count > 1:
        await limit.take(count - 1, paid=1)
