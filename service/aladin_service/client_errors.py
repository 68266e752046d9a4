"""What can go wrong between a client and the service.

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
    """There was no answer that this client understands."""


class ServiceError(ClientError):
    """The service answered with an error.

    Attributes:
        status: of HTTP.
        code: names the error, such as ``unknown_id``; made from the status where something before
            the service answered.
        message: of the service, for people.
        request_id: names the request in the service's log; None where it was not told.
        retry_after_s: when to come again, if the service said so.
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
    """The request cannot be answered as it is."""


class NoAccessError(ServiceError):
    """The service wants a key, another key, or one with another scope."""


class NotFoundError(ServiceError):
    """The index has no such item, or nothing of this kind."""


class ConflictError(ServiceError):
    """An item that was to be added has the id of one that is there."""


class TooBusyError(ServiceError):
    """The service has too much to do, or this key has asked for too much."""


class NotReadyError(ServiceError):
    """No index is live yet, or a worker ended."""
