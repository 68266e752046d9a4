"""HTTP answers to errors: one table of status codes, one form of the body, bounded messages."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from aladin_index.encode.item_encoders import RegionsNeededError
from aladin_index.search.collection import NotListableError
from aladin_network.errors import (
    AladinError,
    CheckpointError,
    ConfigError,
    DuplicateItemError,
    EngineUnavailableError,
    GenerationRefusedError,
    ImageError,
    ImageTooLargeError,
    IndexNotReadyError,
    IndexWriteError,
    InputError,
    NoSuchTargetError,
    NoWorkerError,
    OverloadedError,
    RegionError,
    RegionsTooLargeError,
    SearchIndexError,
    ShuttingDownError,
    TextTooLongError,
    UnknownItemError,
    WorkerDiedError,
)
from aladin_service.failures import cut_message, describe_faults, describe_invalid
from aladin_service.http.conventions import conventional_body
from aladin_service.http.errors import (
    AccessError,
    AnswerTooLargeError,
    BodyTimeoutError,
    BodyTooLargeError,
    ContentTypeError,
    CrossSiteError,
    KeysMissingError,
    MissingScopeError,
    RateLimitedError,
    ReadOnlyError,
    UnauthorizedError,
    UnknownHostError,
    UnknownModelError,
    WorkersMissingError,
)
from aladin_service.observe.logs import CURRENT_REQUEST
from aladin_service.photos.photo_bytes import PhotoGoneError

_LOG = logging.getLogger(__name__)

# No answer was sent, as the client had disconnected: nginx's status code, which is never sent.
HUNG_UP = 499

# Matches where an absolute path begins: not inside a word, an address or a relative path.
_PATH_START = re.compile(r"(?<![\w./:~-])/(?=[^\s/])")
# A realm, because the scheme requires a parameter.
_CHALLENGE = 'Bearer realm="aladin-search"'
_PLACE_IN_FILE = re.compile(r"@\d+$")

# Errors raised by the framework itself.
_FRAMEWORK_CODES = {404: "unknown_route", 405: "method_not_allowed"}

# Errors whose answers state when to retry.
_RETRIED = (
    OverloadedError,
    RateLimitedError,
    NoWorkerError,
    WorkerDiedError,
    EngineUnavailableError,
    KeysMissingError,
)

_DESCRIPTIONS = {
    401: "missing or invalid API key",
    403: "the key lacks the scope, the page's origin or the photo's URL is not allowed, or the "
    "service is read-only",
    404: "unknown id or model, or no such collection in the index",
    408: "the body was not received in time",
    409: "an item with this id already exists",
    413: "the body, photo, number of pixels, regions or answer exceed the limit",
    415: "not an image, or neither JSON nor multipart",
    421: "request without a key for a host name that is not allowed",
    422: "invalid field",
    429: "overloaded, or rate limit exceeded",
    503: "no index is live, the newest generation is invalid, the vector database is unavailable, "
    "a worker ended, or the key file is missing",
    507: "the disk is full or not writable; no part of the request was applied",
}


def without_paths(reason: str) -> str:
    """Remove absolute paths from the reason why an item was skipped.

    A path may have spaces and colons, so it is taken to reach up to the last slash of the text;
    of a reason that begins with the path of its file, the file's name is removed as well.
    """
    start = _PATH_START.search(reason)
    if start is None:
        return reason
    begin, end = start.start(), reason.rindex("/") + 1
    name, colon, rest = reason[end:].partition(": ")
    if begin == 0 and colon:
        return rest
    return reason[:begin] + _PLACE_IN_FILE.sub("", name) + colon + rest


class Failure(NamedTuple):
    status: int
    code: str


# The error's class hierarchy is searched, so that the most specific entry applies.
FAILURES: dict[type[BaseException], Failure] = {
    UnauthorizedError: Failure(401, "unauthorized"),
    AccessError: Failure(403, "forbidden"),
    MissingScopeError: Failure(403, "missing_scope"),
    CrossSiteError: Failure(403, "cross_site"),
    ReadOnlyError: Failure(403, "read_only"),
    UnknownItemError: Failure(404, "unknown_id"),
    NoSuchTargetError: Failure(404, "no_such_target"),
    PhotoGoneError: Failure(404, "photo_gone"),
    UnknownModelError: Failure(404, "model_not_found"),
    BodyTimeoutError: Failure(408, "body_timeout"),
    DuplicateItemError: Failure(409, "duplicate_id"),
    AnswerTooLargeError: Failure(413, "answer_too_large"),
    BodyTooLargeError: Failure(413, "body_too_large"),
    ImageTooLargeError: Failure(413, "image_too_large"),
    RegionsTooLargeError: Failure(413, "regions_too_large"),
    ContentTypeError: Failure(415, "unsupported_content_type"),
    ImageError: Failure(415, "not_an_image"),
    UnknownHostError: Failure(421, "unknown_host"),
    RegionError: Failure(422, "invalid_regions"),
    NotListableError: Failure(422, "not_listable"),
    RegionsNeededError: Failure(422, "regions_needed"),
    TextTooLongError: Failure(422, "text_too_long"),
    InputError: Failure(422, "invalid_field"),
    ConfigError: Failure(422, "invalid_field"),
    OverloadedError: Failure(429, "overloaded"),
    RateLimitedError: Failure(429, "rate_limited"),
    IndexNotReadyError: Failure(503, "index_not_ready"),
    KeysMissingError: Failure(503, "keys_missing"),
    ShuttingDownError: Failure(503, "shutting_down"),
    EngineUnavailableError: Failure(503, "engine_unavailable"),
    WorkersMissingError: Failure(503, "workers_missing"),
    NoWorkerError: Failure(503, "workers_missing"),
    WorkerDiedError: Failure(503, "worker_died"),
    GenerationRefusedError: Failure(503, "generation_refused"),
    IndexWriteError: Failure(507, "cannot_write"),
    SearchIndexError: Failure(500, "index_broken"),
    CheckpointError: Failure(500, "index_broken"),
    Exception: Failure(500, "internal_error"),
}


class ErrorDetail(BaseModel):
    """One error with code, message and request id."""

    code: str
    message: str
    request_id: str


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class ErrorResponse(JSONResponse):
    """A response with an `ErrorBody`, or in the shape of the convention that its route follows.

    Attributes:
        code: Code of the error.
    """

    def __init__(
        self, failure: Failure, message: str, request_id: str, headers: dict[str, str]
    ) -> None:
        self.code = failure.code
        message = cut_message(message)
        record = CURRENT_REQUEST.get()
        path = "" if record is None else record.path
        body = conventional_body(path, failure.status, failure.code, message, request_id)
        if body is None:
            detail = ErrorDetail(code=failure.code, message=message, request_id=request_id)
            body = ErrorBody(error=detail).model_dump()
        super().__init__(body, status_code=failure.status, headers=headers)


def failure_of(error: Exception) -> Failure:
    return next(FAILURES[kind] for kind in type(error).__mro__ if kind in FAILURES)


def error_docs(
    *statuses: int, body: type[BaseModel] = ErrorBody
) -> dict[int | str, dict[str, Any]]:
    """Describe the errors that a route may return, for the OpenAPI page."""
    return {status: {"model": body, "description": _DESCRIPTIONS[status]} for status in statuses}


def error_response(error: Exception, request_id: str) -> ErrorResponse:
    return _note(part_error(error, request_id))


def part_error(error: Exception, request_id: str) -> ErrorResponse:
    """Build the answer that a part of a request would receive as a request of its own."""
    failure = failure_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, _RETRIED):
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    if isinstance(error, BodyTimeoutError):
        headers["Connection"] = "close"
    challenge = _challenge(error)
    if challenge is not None:
        headers["WWW-Authenticate"] = challenge
    return ErrorResponse(failure, message_of(error), request_id, headers)


def _challenge(error: Exception) -> str | None:
    """Return the challenge of RFC 6750 for a request whose key does not suffice, or None."""
    if isinstance(error, UnauthorizedError):
        return f'{_CHALLENGE}, error="invalid_token"' if error.has_key else _CHALLENGE
    if isinstance(error, MissingScopeError):
        return f'{_CHALLENGE}, error="insufficient_scope", scope="{error.scope}"'
    return None


def message_of(error: Exception) -> str:
    """Return what a client is told of an error: nothing internal, and no paths."""
    if isinstance(error, IndexWriteError):
        return error.reason  # without the path, which is private
    if isinstance(error, EngineUnavailableError):  # without the address of the engine
        return "the vector database is unavailable; retry later"
    if isinstance(error, AladinError) and failure_of(error).status != 500:
        return str(error)
    return "internal error; see the service's log for this request id"


def unknown_route_response(
    method: str, path: str, allowed: Sequence[str], request_id: str
) -> JSONResponse:
    status = 405 if allowed else 404
    headers = {"Allow": ", ".join(allowed)} if allowed else {}
    failure = Failure(status, _FRAMEWORK_CODES[status])
    message = f"{method} {path}: {HTTPStatus(status).phrase}"
    return _note(ErrorResponse(failure, message, request_id, headers))


def invalid_input(error: ValidationError) -> InputError:
    """Describe the faults of a body, without repeating what was sent."""
    return InputError(describe_invalid(error))


def install_error_handlers(app: FastAPI) -> None:
    """Make an application answer every error with an `ErrorBody`."""
    app.add_exception_handler(AladinError, answer_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_framework_error)


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Answer a request whose route has raised an error; a broken index is logged."""
    response = error_response(error, request.state.request_id)
    if response.status_code == 500:
        _LOG.error("request failed: %s", error, exc_info=error)
    return response


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    message = describe_faults(error.errors())
    return _note(ErrorResponse(FAILURES[InputError], message, request.state.request_id, {}))


async def _on_framework_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    failure = Failure(error.status_code, _FRAMEWORK_CODES.get(error.status_code, "http_error"))
    where = f"{request.method} {request.url.path}"
    message, headers = f"{where}: {error.detail}", dict(error.headers or {})
    return _note(ErrorResponse(failure, message, request.state.request_id, headers))


def _note(response: ErrorResponse) -> ErrorResponse:
    """Store the error code of a request's answer for its log line."""
    record = CURRENT_REQUEST.get()
    if record is not None:
        record.error_code = response.code
    return response
