"""Who gets in: what the settings, the keys and the address to listen on come to."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from aladin.errors import ConfigError
from service.http.access.key_ring import KeyRing
from service.http.access.origins import check_origins, is_loopback
from service.http.access.rate_limits import ClientBuckets, Clock, RateStore
from service.http.access.shared_rates import RedisRates
from service.keys.api_key import SCOPES, Scope
from service.metrics import Metrics
from service.settings import ServiceSettings

_LOG = logging.getLogger(__name__)

# Of one client: a key that was mistyped is tried by hand, or by a program at its start.
_WRONG_KEYS_PER_S = 1.0
_WRONG_KEYS_BURST = 20


@dataclass(frozen=True, kw_only=True)
class AccessPolicy:
    """What holds for all requests of one service.

    Attributes:
        keys: that are known; None: the service has none, and looks at none.
        anonymous: scopes of a request without a key.
        clients: what limits requests without a key; None: nothing does.
        wrong_keys: what limits requests whose key is not accepted.
        rates: where rates are counted for all replicas; None: each service counts alone.
        hosts: names that a request without a key may ask for, in lower case.
        origins: of the pages that may use the service, besides its own.
    """

    keys: KeyRing | None
    anonymous: frozenset[Scope]
    clients: ClientBuckets | None
    wrong_keys: ClientBuckets
    rates: RateStore | None
    hosts: frozenset[str]
    origins: frozenset[str]

    def is_locked(self) -> bool:
        """Return whether every request is refused because the file of keys is missing."""
        return self.keys is not None and not self.anonymous and self.keys.is_missing()


def make_policy(
    settings: ServiceSettings,
    host: str = "127.0.0.1",
    clock: Clock = time.monotonic,
    metrics: Metrics | None = None,
) -> AccessPolicy:
    """Decide who gets in.

    Without keys everybody on this machine may do everything. Where others can reach the service
    too, somebody has to have said that they may, and then they read and no more.

    Args:
        settings: of the service.
        host: that it listens on.
        clock: of the rates, in seconds.
        metrics: where is counted what a store of rates does not answer; None: nowhere.

    Raises:
        ConfigError: the file of keys cannot be used, an origin is none, the store of rates is not
            one that is known, or without keys the service would be open to others.
    """
    check_origins(settings.cors_origins)
    keys = None if settings.keys_file is None else KeyRing(settings.keys_file, clock)
    anonymous: frozenset[Scope] = frozenset()
    if keys is None and is_loopback(host):
        anonymous = frozenset(SCOPES)
    elif settings.allow_anonymous:
        anonymous = frozenset(("read", "metrics") if keys is None else ("read",))
    elif keys is None:
        raise ConfigError(
            f"without keys the service listens on 127.0.0.1 only, not on {host}: make one with "
            "aladin key add and give --keys, or let everybody read with --allow-anonymous"
        )
    _LOG.info(_describe(settings, anonymous))
    clients = None
    if settings.anonymous_requests_per_s is not None:
        clients = ClientBuckets(settings.anonymous_requests_per_s, settings.anonymous_burst, clock)
    rates = None
    if settings.rate_store is not None:
        rates = RedisRates(settings.rate_store.get_secret_value(), metrics or Metrics(), clock)
    return AccessPolicy(
        keys=keys,
        anonymous=anonymous,
        clients=clients,
        wrong_keys=ClientBuckets(_WRONG_KEYS_PER_S, _WRONG_KEYS_BURST, clock),
        rates=rates,
        hosts=frozenset(name.lower() for name in (*settings.allowed_hosts, host)),
        origins=frozenset(settings.cors_origins),
    )


def _describe(settings: ServiceSettings, anonymous: frozenset[Scope]) -> str:
    """Return a sentence about who may do what."""
    may_write = "write" in anonymous and not settings.read_only
    may = "read, add and delete" if may_write else "read"
    if settings.keys_file is None:
        return f"authentication is off: anybody who reaches this address may {may}"
    on = f"authentication is on: keys are read from {settings.keys_file}"
    return f"{on}, and requests without a key may {may}" if anonymous else on
