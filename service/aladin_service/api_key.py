"""API keys: their format, and what is stored of a key."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

Scope = Literal["read", "write", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

# Prefix by which people and secret scanners recognize a key at once.
PREFIX = "aladin_"
_SECRET_BYTES = 32
# A name can be written to a log line without escaping.
NAME = r"[A-Za-z0-9._-]{1,64}"


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key as it is stored; the secret itself is known to its user alone.

    Attributes:
        name: Name that identifies the key in logs and in the file.
        sha256: SHA-256 digest of the key, in hex.
        scopes: Operations permitted to the user of the key. No scope implies another.
        requests_per_s: Request rate permitted in the long run, or None for no limit.
        burst: Number of requests that may come at once after a pause, or None if there is no rate.
        created: Creation time in ISO 8601.
    """

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    requests_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    burst: Annotated[int, Field(ge=1)] | None = None
    created: str = ""

    def __post_init__(self) -> None:
        if (self.requests_per_s is None) != (self.burst is None):
            raise ValueError("expected requests_per_s and burst, or neither")


def new_secret() -> str:
    """Make a key: the prefix and 256 random bits."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest(secret: str) -> str:
    """Return the digest that is stored of a key.

    A plain SHA-256 will do: slow, salted hashes protect passwords, which can be guessed. Nobody
    guesses 256 random bits, and every request has to be checked.
    """
    return hashlib.sha256(secret.encode()).hexdigest()
