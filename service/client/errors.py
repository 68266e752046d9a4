"""What can go wrong between a client and the service.

    ClientError
      ServiceUnreachableError  no connection, a broken one, no answer in time, or not this service's
      ServiceError             the service answered with an error
        RefusedInputError      400, 413, 415, 422: the request cannot be answered as it is
        NoAccessError          401, 403: no or a wrong key, or one without the scope
        NotFoundError          404: no such item, or nothing of this kind in the index
        ConflictError          409: an item with this id is there already
        TooBusyError           429: overloaded, or over the key's rate
        NotReadyError          503: no index is live, or a worker ended

They are no `InputError` or `UnknownItemError` of this process: those describe what is wrong with
data that is here, these what a service said of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from aladin.errors import AladinError


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


_KINDS: Mapping[int, type[ServiceError]] = {
    400: RefusedInputError,
    401: NoAccessError,
    403: NoAccessError,
    404: NotFoundError,
    409: ConflictError,
    413: RefusedInputError,
    415: RefusedInputError,
    422: RefusedInputError,
    429: TooBusyError,
    503: NotReadyError,
}


class ErrorDetail(BaseModel):
    """One error as the service tells of it."""

    code: str
    message: str
    request_id: str | None = None


class _Body(BaseModel):
    error: ErrorDetail


def error_of(status: int, detail: ErrorDetail, retry_after_s: float | None = None) -> ServiceError:
    """Make the error of a status.

    Args:
        status: of HTTP, 300 or above.
        detail: what the service says.
        retry_after_s: of the answer's header.
    """
    kind = _KINDS.get(status, ServiceError)
    return kind(status, detail.code, detail.message, detail.request_id, retry_after_s)


def read_error(status: int, body: bytes, retry_after_s: float | None) -> ServiceError:
    """Make the error that an answer tells of.

    Args:
        status: of HTTP, 300 or above.
        body: of the answer; that of a proxy may have any form.
        retry_after_s: of the answer's header.
    """
    try:
        detail = _Body.model_validate_json(body).error
    except ValidationError:
        code = f"http_{status}"
        detail = ErrorDetail(code=code, message=f"the answer has status {status} and no reason")
    return error_of(status, detail, retry_after_s)
