"""Errors between a client and the service.

    ClientError
      ServiceUnreachableError  no connection, a broken one, no answer in time, or not this service's
      ServiceError             the service answered with an error
        RefusedInputError      400, 413, 415, 422: the request cannot be answered as it is
        NoAccessError          401, 403: no or a wrong key, or one without the scope
        NotFoundError          404: no such item, or nothing of this kind in the index
        ConflictError          409: an item with this id is there already
        TooBusyError           429: overloaded, or over the key's rate
        NotReadyError          503: no index is live, its engine is away, or a worker ended

They are no `InputError` or `UnknownItemError` of this process: those describe what is wrong with
data that is here, these what a service said of it.
"""

from __future__ import annotations

from aladin_network.errors import AladinError


class ClientError(AladinError):
    """Base of every error that a client of the service raises."""


class ServiceUnreachableError(ClientError):
    """The client received no answer that it understands."""


class ServiceError(ClientError):
    """The service answered with an error.

    Attributes:
        status: HTTP status.
        code: Name of the error, such as ``unknown_id``; derived from the status if something in
            front of the service responded.
        message: Error message of the service, human-readable.
        request_id: ID of the request in the service's log, or None if unknown.
        retry_after_s: Seconds to wait before a retry, if the service specified them.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        request_id: str | None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class RefusedInputError(ServiceError):
    """The service rejected the request in its present form."""


class NoAccessError(ServiceError):
    """The service requires a key, another key, or a key with another scope."""


class NotFoundError(ServiceError):
    """The index has no such item, or nothing of the requested kind."""


class ConflictError(ServiceError):
    """An item to add has the id of an existing item."""


class TooBusyError(ServiceError):
    """The service is overloaded, or the key exceeded its rate limit."""


class NotReadyError(ServiceError):
    """No index is live yet, or a worker process ended."""
