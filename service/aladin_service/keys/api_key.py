"""API keys: what one is, and what is kept of it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["read", "write", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

# So that people and scanners of leaked secrets see at once what they look at.
PREFIX = "aladin_"
_SECRET_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """One key as the service knows it; the key itself is known to its user alone.

    Attributes:
        name: tells keys apart in logs and in the file.
        sha256: digest of the key, in hex.
        scopes: what its user may do. None implies another.
        requests_per_s: what its user may ask for in the long run; None: any number.
        burst: requests that may come at once after a pause; None where there is no rate.
        created: when, in ISO 8601.
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
    """Return what is kept of a key.

    A plain SHA-256 will do: slow, salted hashes protect passwords, which can be guessed. Nobody
    guesses 256 random bits, and every request has to be checked.
    """
    return hashlib.sha256(secret.encode()).hexdigest()
