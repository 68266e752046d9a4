"""API keys: their format, and what is stored of a key."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["read", "write", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

# Prefix by which people and secret scanners recognize a key at once.
PREFIX = "aladin_"
_SECRET_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key as the service knows it; the secret itself is known to its user alone.

    Attributes:
        name: Name that identifies the key in logs and in the file.
        sha256: SHA-256 digest of the key, in hex.
        scopes: Operations permitted to the user of the key. No scope implies another.
        requests_per_s: Request rate permitted in the long run, or None for no limit.
        burst: Number of requests that may come at once after a pause, or None if there is no rate.
        created: Creation time in ISO 8601.
    """

    name: str
    sha256: str
    scopes: frozenset[Scope]
    requests_per_s: float | None = None
    burst: int | None = None
    created: str = ""


def new_secret() -> str:
    """Make a key: the prefix and 256 random bits."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest(secret: str) -> str:
    """Return the digest that is stored of a key.

    A plain SHA-256 will do: slow, salted hashes protect passwords, which can be guessed. Nobody
    guesses 256 random bits, and every request has to be checked.
    """
    return hashlib.sha256(secret.encode()).hexdigest()
