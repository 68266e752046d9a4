"""Errors of HTTP requests: of their bodies, and of access control."""

from __future__ import annotations

from aladin_network.errors import AladinError, InputError, OverloadedError
from aladin_service.api_key import Scope

# A batch of searches, a page of hits with the largest metadata, or the tokens of many inputs would
# have some gigabytes, all of it in memory until it is sent.
MAX_ANSWER_BYTES = 32 * 2**20
# Seconds after which some uploads are likely to have finished.
_ROOM_S = 1.0


class AccessError(AladinError):
    """Base of the access errors."""


class UnauthorizedError(AccessError):
    """A key is required, and the request has none or an unknown one.

    Attributes:
        has_key: Whether the request has a key, or something in its place.
    """

    def __init__(self, message: str, *, has_key: bool = True) -> None:
        super().__init__(message)
        self.has_key = has_key


class KeysMissingError(AccessError):
    retry_after_s = 1.0

    def __init__(self) -> None:
        super().__init__(
            "the key file of the service is missing; all keys are rejected until it is restored"
        )


class MissingScopeError(AccessError):
    def __init__(self, scope: Scope, key_name: str | None) -> None:
        lacks = "requests without a key do not have"
        if key_name is not None:
            lacks = f"the key {key_name!r} does not have"
        super().__init__(f"this requires the scope {scope!r}, which {lacks}")
        self.scope = scope


class UnknownHostError(AccessError):
    def __init__(self, host: str) -> None:
        super().__init__(
            f"requests without a key must address the service by IP address, by localhost or by a "
            f"name in ALADIN_ALLOWED_HOSTS, not by {host!r}"
        )


class CrossSiteError(AccessError):
    def __init__(self, origin: str) -> None:
        super().__init__(f"requests from pages of the origin {origin!r} are not allowed")


class AnswerTooLargeError(AladinError):
    def __init__(self) -> None:
        super().__init__(
            f"the answer has more than {MAX_ANSWER_BYTES} bytes; ask for less of it at a time:"
            " fewer hits, queries or inputs, or without explain or return_multivector"
        )


class RateLimitedError(AccessError):
    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"rate limit exceeded; retry in {retry_after_s:.3g} s")
        self.retry_after_s = retry_after_s


class TooManyWrongKeysError(RateLimitedError):
    def __init__(self, retry_after_s: float) -> None:
        super().__init__(retry_after_s)
        self.args = (
            "invalid API key, and too many requests with invalid keys from this address; retry in "
            f"{retry_after_s:.3g} s",
        )


class BodyTooLargeError(InputError):
    """A request's body is over the limit; found while it was read."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the body exceeds the limit of {limit_bytes} bytes")


class JsonTooLargeError(BodyTooLargeError):
    """A JSON body would cost too much to parse; found before it is parsed."""

    def __init__(self, limit: str) -> None:
        InputError.__init__(self, f"the body exceeds the limit of {limit}")


class BodiesTooLargeError(OverloadedError):
    """The bodies of the requests that are under way take all the room that there is for them."""

    def __init__(self) -> None:
        super().__init__(_ROOM_S)
        self.args = (f"too many bytes are being uploaded; retry in {_ROOM_S:g} s",)


class BodyTimeoutError(InputError):
    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the body was not received completely within {timeout_s:g} s")


class ContentTypeError(InputError):
    def __init__(
        self, actual: str, expected: str = "application/json or multipart/form-data"
    ) -> None:
        super().__init__(f"expected a body of type {expected}, got {actual or 'no content type'}")


class ReadOnlyError(AladinError):
    def __init__(self) -> None:
        super().__init__("this service is read-only: items cannot be added or deleted")


class WorkersMissingError(AladinError):
    def __init__(self, alive: int, wanted: int) -> None:
        super().__init__(f"{alive} of {wanted} workers are available")


class UnknownModelError(AladinError):
    def __init__(self, name: str, served: str) -> None:
        super().__init__(f"model: {name!r} is not served here; expected {served!r} or 'aladin'")
