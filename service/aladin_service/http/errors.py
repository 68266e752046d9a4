"""Errors of HTTP requests: of their bodies, and of access control."""

from __future__ import annotations

from aladin_network.errors import AladinError, InputError, OverloadedError
from aladin_service.keys.api_key import Scope

# Seconds after which some uploads are likely to have finished.
_ROOM_S = 1.0


class AccessError(AladinError):
    """Base of the access errors."""


class UnauthorizedError(AccessError):
    """A key is required, and the request has none or an unknown one."""


class KeysMissingError(AccessError):
    """The key file is missing, so no key can be checked."""

    retry_after_s = 1.0

    def __init__(self) -> None:
        super().__init__(
            "the service's file of keys is missing, so no key is accepted until it is back"
        )


class MissingScopeError(AccessError):
    """The request's key, or a request without a key, lacks the required scope."""

    def __init__(self, scope: Scope, key_name: str | None) -> None:
        """Describe the missing scope.

        Args:
            scope: Required scope.
            key_name: Name of the key, or None for a request without a key.
        """
        lacks = "requests without a key do not have"
        if key_name is not None:
            lacks = f"the key {key_name!r} does not have"
        super().__init__(f"this needs the scope {scope!r}, which {lacks}")
        self.scope = scope


class UnknownHostError(AccessError):
    """The request names a host that is not a configured name of this service."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"without a key this service answers to an address, to localhost and to the names in "
            f"ALADIN_ALLOWED_HOSTS, not to {host!r}"
        )


class CrossSiteError(AccessError):
    """A page of another site sent the request."""

    def __init__(self, origin: str) -> None:
        super().__init__(f"requests of pages from {origin!r} are not accepted here")


class RateLimitedError(AccessError):
    """A client exceeds its rate limit."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"more requests than this client may send; try in {retry_after_s:.3g} s")
        self.retry_after_s = retry_after_s


class TooManyWrongKeysError(RateLimitedError):
    """A client repeatedly sends keys that are not accepted."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(retry_after_s)
        self.args = (
            "the request's key is not accepted, as those of many requests from this address before "
            f"it; try another one in {retry_after_s:.3g} s",
        )


class BodyTooLargeError(InputError):
    """A request's body is over the limit; found while it was read."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the body is over the limit of {limit_bytes} bytes")


class JsonTooLargeError(BodyTooLargeError):
    """A JSON body would cost too much to parse; found before it is parsed."""

    def __init__(self, limit: str) -> None:
        """Name the limit that is exceeded."""
        InputError.__init__(self, f"the body is over the limit of {limit}")


class BodiesTooLargeError(OverloadedError):
    """The bodies of the requests that are under way take all the room that there is for them."""

    def __init__(self) -> None:
        super().__init__(_ROOM_S)
        self.args = (f"too many bytes are being uploaded, try again in {_ROOM_S:g} s",)


class BodyTimeoutError(InputError):
    """A request's body did not come whole in time."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the body did not come whole within {timeout_s:g} s")


class ContentTypeError(InputError):
    """A request's body is of none of the expected types."""

    def __init__(
        self, actual: str, expected: str = "application/json or multipart/form-data"
    ) -> None:
        super().__init__(f"expected a body of type {expected}, got {actual or 'no content type'}")


class ReadOnlyError(AladinError):
    """A request would change the index of a service that only reads."""

    def __init__(self) -> None:
        super().__init__("this service is read-only: nothing can be added or deleted")


class WorkersMissingError(AladinError):
    """Not all workers take jobs."""

    def __init__(self, alive: int, wanted: int) -> None:
        super().__init__(f"expected {wanted} workers, {alive} take jobs now")
