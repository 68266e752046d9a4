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
            "this needs the scope 'write', which the key 'ci' does not have",
        ),
        (
            MissingScopeError("write", None),
            "this needs the scope 'write', which requests without a key do not have",
        ),
        (
            UnknownHostError("evil.example"),
            "without a key this service answers to an address, to localhost and to the names in "
            "ALADIN_ALLOWED_HOSTS, not to 'evil.example'",
        ),
        (
            CrossSiteError("http://evil.example"),
            "requests of pages from 'http://evil.example' are not accepted here",
        ),
        (RateLimitedError(1.25), "more requests than this client may send; try in 1.25 s"),
        (
            TooManyWrongKeysError(0.5),
            "the request's key is not accepted, as those of many requests from this address "
            "before it; try another one in 0.5 s",
        ),
        (
            KeysMissingError(),
            "the service's file of keys is missing, so no key is accepted until it is back",
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
