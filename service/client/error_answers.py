"""From an answer that is an error to the exception that a client raises."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from service.client_errors import (
    ConflictError,
    NoAccessError,
    NotFoundError,
    NotReadyError,
    RefusedInputError,
    ServiceError,
    TooBusyError,
)

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
