"""The keys that a service knows now: found by their secrets, read again when their file changes."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from pathlib import Path

from aladin.errors import ConfigError
from service.http.access.errors import KeysMissingError
from service.http.access.rate_limits import Clock, TokenBucket
from service.keys.api_key import ApiKey
from service.keys.keys_file import read_keys

_LOG = logging.getLogger(__name__)

# A key that was removed is refused this much later at the latest.
_CHECK_EVERY_S = 1.0
# Programs that replace a file by deleting the old one leave none for a moment.
_MISSING_S = 5.0


class KeyRing:
    """The keys of one file, each with its bucket; used by the event loop alone."""

    def __init__(self, file: Path, clock: Clock = time.monotonic) -> None:
        """Read the file.

        Raises:
            ConfigError: it is missing, cannot be read, or is not a file of keys.
        """
        self._file = file
        self._clock = clock
        self._version = _version(file)
        self._keys: list[tuple[bytes, ApiKey]] = []
        self._buckets: dict[str, TokenBucket] = {}
        self._take(read_keys(file))
        self._checked_s = self._seen_s = clock()
        self._missing = False

    def find(self, secret: str) -> ApiKey | None:
        """Return the key with a secret; None: there is no such key.

        How long it takes tells nothing: every digest is compared, each in constant time.

        Raises:
            KeysMissingError: If the file was last seen more than a few seconds ago.
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
        """Return whether the file has been missing for so long that no key is accepted."""
        # While it is missing every request looks for it: it may be back.
        if self._missing or self._clock() - self._checked_s >= _CHECK_EVERY_S:
            self._reload()
        return self._missing

    def bucket(self, key: ApiKey) -> TokenBucket | None:
        """Return what limits a key that was found; None: nothing does."""
        return self._buckets.get(key.name)

    def _reload(self) -> None:
        now_s = self._checked_s = self._clock()
        version = _version(self._file)
        if version is None:
            self._version = None  # the file is read again when it is back
            if not self._missing and now_s - self._seen_s >= _MISSING_S:
                self._missing = True
                _LOG.error("%s is missing: no key is accepted until it is back", self._file)
            return
        self._seen_s = now_s
        if version == self._version:
            return
        self._version = version
        try:
            keys = read_keys(self._file)
        except ConfigError as error:
            kept = "no key is accepted" if self._missing else "the keys stay as they were"
            _LOG.error("%s; %s", error, kept)
            return
        self._missing = False
        self._take(keys)
        _LOG.info("%s: read again, keys: %s", self._file, ", ".join(key.name for key in keys))

    def _take(self, keys: tuple[ApiKey, ...]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]
        before, self._buckets = self._buckets, {}
        for key in keys:
            if key.requests_per_s is None or key.burst is None:
                continue
            bucket = before.get(key.name)
            # A bucket that is as it was stays: a reload gives nobody a full one.
            if bucket is None or (bucket.per_s, bucket.burst) != (key.requests_per_s, key.burst):
                bucket = TokenBucket(key.requests_per_s, key.burst, self._clock)
            self._buckets[key.name] = bucket


def _version(file: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever the file does; None: it is not there."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
