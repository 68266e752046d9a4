"""Access policy: API keys, the scope that each route requires, and the rules of one service.

`KeyRing` holds the keys of a file and reloads them when the file changes. `NEEDED` is the table of
the scopes that the routes require. `make_policy` derives an `AccessPolicy` from the settings, the
keys and the listening address.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from aladin_network.errors import ConfigError
from aladin_service.api_key import SCOPES, ApiKey, Scope
from aladin_service.http.access.origins import check_origins, is_loopback
from aladin_service.http.access.rate_limits import ClientBuckets, Clock, TokenBucket
from aladin_service.http.errors import KeysMissingError
from aladin_service.keys_file import read_keys
from aladin_service.settings import ServiceSettings

_LOG = logging.getLogger(__name__)

# Longest delay until a removed key is rejected.
_CHECK_EVERY_S = 1.0
# Programs that replace a file by deleting the old one leave a short gap without a file.
_MISSING_S = 5.0

# What each scope permits, in the log.
_MAY: dict[Scope, str] = {
    "read": "search",
    "write": "add and delete items",
    "metrics": "read the metrics",
}
# Limit of rejected keys per client: enough for a mistyped key.
_WRONG_KEYS_PER_S = 1.0
_WRONG_KEYS_BURST = 20


class KeyRing:
    """The keys of one file, each with its bucket; used only by the event loop."""

    def __init__(self, file: Path, clock: Clock = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._version = _version(file)
        self._keys: list[tuple[bytes, ApiKey]] = []
        self._buckets: dict[str, TokenBucket] = {}
        self._take(read_keys(file))
        self._checked_s = self._seen_s = clock()
        self._missing = False

    def find(self, secret: str) -> ApiKey | None:
        """Return the key with a secret, or None if there is no such key.

        How long it takes tells nothing: every digest is compared, each in constant time.
        """
        if self.is_missing():
            raise KeysMissingError
        presented = hashlib.sha256(secret.encode()).digest()
        found: ApiKey | None = None
        for known, key in self._keys:
            if hmac.compare_digest(known, presented):
                found = key
        return found

    def is_missing(self) -> bool:
        """Return whether the file has been missing for too long to accept keys."""
        # While it is missing, every request checks whether it exists again.
        if self._missing or self._clock() - self._checked_s >= _CHECK_EVERY_S:
            self._reload()
        return self._missing

    def bucket(self, key: ApiKey) -> TokenBucket | None:
        """Return the rate limit of a key, or None if it has none."""
        return self._buckets.get(key.name)

    def _reload(self) -> None:
        now_s = self._checked_s = self._clock()
        version = _version(self._file)
        if version is None:
            self._version = None  # the file is read again when it is back
            if not self._missing and now_s - self._seen_s >= _MISSING_S:
                self._missing = True
                _LOG.error("%s is missing: rejecting all keys until it is restored", self._file)
            return
        self._seen_s = now_s
        if version == self._version:
            return
        self._version = version
        try:
            keys = read_keys(self._file)
        except ConfigError as error:
            kept = "rejecting all keys" if self._missing else "keeping the previous keys"
            _LOG.error("%s; %s", error, kept)
            return
        self._missing = False
        self._take(keys)
        _LOG.info("%s: reloaded, keys: %s", self._file, ", ".join(key.name for key in keys))

    def _take(self, keys: tuple[ApiKey, ...]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]
        before, self._buckets = self._buckets, {}
        for key in keys:
            if key.requests_per_s is None or key.burst is None:
                continue
            bucket = before.get(key.name)
            # The bucket of an unchanged key is kept: a reload does not refill it.
            if bucket is None or (bucket.per_s, bucket.burst) != (key.requests_per_s, key.burst):
                bucket = TokenBucket(key.requests_per_s, key.burst, self._clock)
            self._buckets[key.name] = bucket


def _version(file: Path) -> tuple[int, int, int] | None:
    """Return a value that changes whenever the file does, or None if it does not exist."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@dataclass(frozen=True, kw_only=True)
class AccessPolicy:
    """Access rules for all requests of one service.

    Attributes:
        keys: Known keys, or None if the service has no keys and ignores those of requests.
        anonymous: Scopes of a request without a key.
        clients: Rate limits of requests without a key, or None without limits.
        wrong_keys: Rate limits of requests whose key is not accepted.
        hosts: Host names accepted in requests without a key, in lower case.
        origins: Origins of the pages that may use the service, besides its own.
    """

    keys: KeyRing | None
    anonymous: frozenset[Scope]
    clients: ClientBuckets | None
    wrong_keys: ClientBuckets
    hosts: frozenset[str]
    origins: frozenset[str]

    def is_locked(self) -> bool:
        """Return whether every request is rejected because the key file is missing."""
        return self.keys is not None and not self.anonymous and self.keys.is_missing()


def make_policy(
    settings: ServiceSettings,
    host: str = "127.0.0.1",
    clock: Clock = time.monotonic,
) -> AccessPolicy:
    """Make the access rules from the settings.

    Without keys everybody on this machine may do everything. On an address that other machines can
    reach, requests without a key must be allowed explicitly, and may then only read.
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
            f"without keys the service listens on 127.0.0.1 only, not on {host}: create a key with "
            "aladin key add and pass --keys, or allow reading without a key by --allow-anonymous"
        )
    _LOG.info(_describe(settings, anonymous))
    clients = None
    if settings.anonymous_requests_per_s is not None:
        clients = ClientBuckets(settings.anonymous_requests_per_s, settings.anonymous_burst, clock)
    return AccessPolicy(
        keys=keys,
        anonymous=anonymous,
        clients=clients,
        wrong_keys=ClientBuckets(_WRONG_KEYS_PER_S, _WRONG_KEYS_BURST, clock),
        hosts=frozenset(name.lower() for name in (*settings.allowed_hosts, host)),
        origins=frozenset(settings.cors_origins),
    )


def closed_policy() -> AccessPolicy:
    """Make the rules of a service that no request reaches."""
    return AccessPolicy(
        keys=None,
        anonymous=frozenset(),
        clients=None,
        wrong_keys=ClientBuckets(_WRONG_KEYS_PER_S, _WRONG_KEYS_BURST),
        hosts=frozenset(),
        origins=frozenset(),
    )


def _describe(settings: ServiceSettings, anonymous: frozenset[Scope]) -> str:
    """Return a log line about who may do what with and without a key."""
    scopes = anonymous - {"write"} if settings.read_only else anonymous
    parts = [words for scope, words in _MAY.items() if scope in scopes]
    comma = ", and " if len(parts) > 2 else " and "
    may = comma.join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    if settings.keys_file is not None:
        others = f"anybody else may {may} without a key" if may else "nobody else may do anything"
        return f"whoever has a key of {settings.keys_file} may do what it allows; {others}"
    # Requests from elsewhere never have the right to change the index without a key.
    who = "anybody on this machine" if "write" in anonymous else "anybody who can reach it"
    return f"the service asks for no key: {who} may {may}"
