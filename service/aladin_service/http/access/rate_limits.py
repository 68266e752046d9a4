"""Rate limits of clients: token buckets, kept in this process or shared through Redis.

Each request costs one token; requests that hold several queries or items cost more.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urlsplit

from fastapi import Request

from aladin_network.errors import ConfigError, missing_package
from aladin_service.http.errors import RateLimitedError
from aladin_service.observe.metrics import Metrics

if TYPE_CHECKING:
    from redis.asyncio import Redis

# Number of remembered clients without a key. A forgotten client starts with a full bucket again, so
# an attacker needs this many addresses to evade the limit.
_MAX_CLIENTS = 10_000

Clock = Callable[[], float]

_LOG = logging.getLogger(__name__)

# Longest wait of a request for an answer. A Redis nearby answers in a millisecond.
_TIMEOUT_S = 0.1
# Pause before a Redis that did not answer is queried again; no request waits for it meanwhile.
_ASK_AGAIN_S = 1.0
# Each connection is used by one request at a time, for a fraction of a millisecond.
_MAX_CONNECTIONS = 8

_PREFIX = "aladin:rate:"

# `TokenBucket.take` with the clock of the Redis, since those of the services may differ. The script
# blocks all other clients while it runs. Numbers are passed as text, because Redis truncates them
# to integers. A full bucket is deleted: a missing one is full.
_TAKE = """
local per_s, burst, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local paid = tonumber(ARGV[4])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local known = redis.call('HMGET', KEYS[1], 'tokens', 'filled_s')
local tokens = burst
if known[1] then
    local passed_s = math.max(0, now - tonumber(known[2]))
    tokens = math.min(burst, tonumber(known[1]) + passed_s * per_s)
end
local missing = math.min(count + paid, burst) - paid - tokens
if missing > 0 then
    return string.format('%.9g', (missing + paid) / per_s)
end
tokens = tokens - count
redis.call('HSET', KEYS[1],
    'tokens', string.format('%.17g', tokens), 'filled_s', string.format('%.17g', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(1000 * (burst - tokens) / per_s) + 1000)
return ''
"""


class TokenBucket:
    """Holds up to `burst` tokens and gains `per_s` tokens per second."""

    __slots__ = ("_clock", "_filled_s", "_tokens", "burst", "per_s")

    def __init__(self, per_s: float, burst: int, clock: Clock = time.monotonic) -> None:
        """Start with a full bucket.

        Args:
            per_s: Tokens added per second, above 0.
            burst: Capacity in tokens, at least 1.
            clock: Clock in seconds.
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
            count: Number of tokens, at least 1.
            paid: Number of tokens already taken by the same request; they count as part of its
                cost.

        Raises:
            RateLimitedError: If there are too few tokens; none is taken. The error states the time
                until the whole request would pass if it is sent again.
        """
        self._fill()
        missing = min(count + paid, self.burst) - paid - self._tokens
        if missing > 0:
            raise RateLimitedError((missing + paid) / self.per_s)
        self._tokens -= count

    def note(self, count: int) -> None:
        """Take tokens that were granted elsewhere, even if there are too few."""
        self._fill()
        self._tokens -= count

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._filled_s) * self.per_s)
        self._filled_s = now


class RateStore(Protocol):
    """Stores the buckets that several services share."""

    async def take(self, who: str, bucket: TokenBucket, count: int, paid: int = 0) -> None:
        """Take tokens from a shared bucket.

        Args:
            who: Name of the bucket.
            bucket: Local bucket of this service, with the rate and the burst of the shared one.
            count: Number of tokens, at least 1.
            paid: Number of tokens already taken by the same request, see `TokenBucket.take`.

        Raises:
            RateLimitedError: If there are too few tokens; none is taken.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


class RateLimit(NamedTuple):
    """The rate limit of the client of one request.

    Attributes:
        who: Name of the client, the same for all services.
        bucket: Bucket of this service.
        store: Store shared by all services, or None if this one counts separately.
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
    """The buckets of clients without a key, by address."""

    def __init__(self, per_s: float, burst: int, clock: Clock = time.monotonic) -> None:
        """Start without clients."""
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
    """Return the network of an address: one customer has a whole /64 of IPv6."""
    if ":" not in address:
        return address
    try:
        ip = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(ip) >> 64 << 64, 64)))


async def charge(request: Request, count: int, paid: int = 1) -> None:
    """Charge a request with several queries or items as much as individual requests.

    The request itself has cost 1 when it reaches its route. One that costs more than its client's
    burst passes when the bucket is full, and leaves a debt.

    Args:
        request: Request that is being handled by a route.
        count: Number of queries or items in the request, or the cost of its queries.
        paid: What the request has cost already.

    Raises:
        RateLimitedError: If the client may not request so many now.
    """
    limit: RateLimit | None = request.state.limit
    if limit is not None and count > paid:
        await limit.take(count - paid, paid=paid)


class RedisRates:
    """Takes tokens from buckets in Redis, or from local buckets while Redis does not answer.

    A request that Redis admits is also counted in this service's own bucket, so that no client has
    a full bucket when Redis fails. Without Redis each of N services applies the whole rate, so a
    client may get up to N times its rate.
    """

    def __init__(self, url: str, metrics: Metrics, clock: Clock = time.monotonic) -> None:
        """Store the settings without connecting.

        Args:
            url: ``redis://[[user]:password@]host[:port][/database]``, ``rediss://`` for TLS, or
                ``unix:///socket``.
            metrics: Metrics that count the requests handled by local buckets only.
            clock: Clock in seconds that determines when to query the store again.

        Raises:
            ConfigError: If the URL is not that of a Redis server, or the package is missing.
        """
        self._redis = _connect(url)
        self._script = self._redis.register_script(_TAKE)
        self._where = _without_password(url)
        self._metrics = metrics
        self._clock = clock
        self._away = False
        self._ask_again_s = 0.0

    async def take(self, who: str, bucket: TokenBucket, count: int, paid: int = 0) -> None:
        """See `RateStore.take`."""
        retry_after_s = await self._ask(who, bucket, count, paid)
        if retry_after_s is None:
            self._metrics.rate_counted_alone()
            bucket.take(count, paid)
        elif retry_after_s > 0:
            raise RateLimitedError(retry_after_s)
        else:
            bucket.note(count)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def _ask(self, who: str, bucket: TokenBucket, count: int, paid: int) -> float | None:
        """Take tokens from the bucket in Redis.

        Returns:
            Seconds until there are enough tokens, 0 if they were taken, or None if Redis does not
            answer.
        """
        from redis.exceptions import RedisError

        now_s = self._clock()
        if self._away:
            if now_s < self._ask_again_s:
                return None
            self._ask_again_s = now_s + _ASK_AGAIN_S  # this request tries, no other with it
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                said = await self._script(
                    [_PREFIX + who], [bucket.per_s, bucket.burst, count, paid]
                )
        except (RedisError, OSError, TimeoutError) as error:
            self._ask_again_s = self._clock() + _ASK_AGAIN_S
            if not self._away:
                self._away = True
                why = str(error) or f"no response within {_TIMEOUT_S} s"
                _LOG.warning("%s: %s; falling back to per-process rate limits", self._where, why)
            return None
        if self._away:
            self._away = False
            _LOG.info("%s is available again; using shared rate limits", self._where)
        return float(said or 0)


def _connect(url: str) -> Redis:
    try:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise ConfigError(missing_package("ALADIN_RATE_STORE", "redis", "redis")) from None
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            timeout=_TIMEOUT_S,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            # One immediate retry: a connection that was idle during a restart of Redis is broken.
            retry=Retry(NoBackoff(), 1),
            decode_responses=True,
        )
    except ValueError:
        # Without the URL and the error message: either may contain a password.
        raise ConfigError(
            "ALADIN_RATE_STORE: expected redis://host:port/database, rediss://... or unix:///..."
        ) from None
    return Redis.from_pool(pool)


def _without_password(url: str) -> str:
    """Return a URL without its password, for messages."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
