"""What whoever is turned away is told."""

from __future__ import annotations

import pytest

from aladin_service.http.errors import (
    AccessError,
    CrossSiteError,
    KeysMissingError,
    MissingScopeError,
    RateLimitedError,
    TooManyWrongKeysError,
    UnknownHostError,
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            MissingScopeError("write", "ci"),
            "this requires the scope 'write', which the key 'ci' does not have",
        ),
        (
            MissingScopeError("write", None),
            "this requires the scope 'write', which requests without a key do not have",
        ),
        (
            UnknownHostError("evil.example"),
            "requests without a key must address the service by IP address, by localhost or by a "
            "name in ALADIN_ALLOWED_HOSTS, not by 'evil.example'",
        ),
        (
            CrossSiteError("http://evil.example"),
            "requests from pages of the origin 'http://evil.example' are not allowed",
        ),
        (RateLimitedError(1.25), "rate limit exceeded; retry in 1.25 s"),
        (
            TooManyWrongKeysError(0.5),
            "invalid API key, and too many requests with invalid keys from this address; retry in "
            "0.5 s",
        ),
        (
            KeysMissingError(),
            "the key file of the service is missing; all keys are rejected until it is restored",
        ),
    ],
)
def test_messages(error: AccessError, message: str) -> None:
    assert str(error) == message


def test_what_programs_read() -> None:
    assert MissingScopeError("write", "ci").scope == "write"
    assert RateLimitedError(1.25).retry_after_s == 1.25
    assert TooManyWrongKeysError(0.5).retry_after_s == 0.5
    assert KeysMissingError().retry_after_s == 1
