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


@dataclass(frozen=True, kw_only=True)
class AccessPolicy:
    """What holds for all requests of one service.

    Attributes:
        keys: that are known; None: the service has none, and looks at none.
        anonymous: scopes of a request without a key.
        clients: what limits requests without a key; None: nothing does.
        rates: where rates are counted for all replicas; None: each service counts alone.
        hosts: names that a request without a key may ask for, in lower case.
        origins: of the pages that may use the service, besides its own.
    """

    keys: KeyRing | None
    anonymous: frozenset[Scope]
    clients: ClientBuckets | None
    rates: RateStore | None
    hosts: frozenset[str]
    origins: frozenset[str]


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
    _LOG.info(
        "who gets in: %s; without a key one may %s",
        "nobody has a key" if keys is None else f"keys of {settings.keys_file}",
        " and ".join(sorted(anonymous)) or "do nothing",
    )
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
        rates=rates,
        hosts=frozenset(name.lower() for name in (*settings.allowed_hosts, host)),
        origins=frozenset(settings.cors_origins),
    )
