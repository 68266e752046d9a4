"""What a request of the clients is: its body, and how its answer is read.

The functions that make them are in `searches`, `items` and `additions`, one for each method of a
client, and independent of whether the client has an event loop.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from aladin_service.client.connection import Again, RetryPolicy
from aladin_service.client.pictures import PictureSource, open_picture, picture_name
from aladin_service.client_errors import ServiceUnreachableError

T = TypeVar("T")

# Making one takes longer than reading an answer.
_adapter: Callable[[Any], TypeAdapter[Any]] = functools.cache(TypeAdapter)


class Photo(NamedTuple):
    """A picture file returned by the service."""

    data: bytes
    media_type: str


class OpenBody(NamedTuple):
    """The body of one attempt for httpx: at most one of `json`, `files` and `content`.

    Attributes:
        json: Object to send as JSON.
        data: Plain fields of a form.
        files: Files of a form by field, each as name and open file.
        content: JSON, written already, piece by piece.
    """

    json: Any = None
    data: dict[str, str] | None = None
    files: dict[str, tuple[str, Any]] | None = None
    content: Iterator[bytes] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers that httpx cannot determine by itself."""
        return {} if self.content is None else {"Content-Type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class Call(Generic[T]):
    """One request and the parser of its answer.

    Attributes:
        method: HTTP method.
        path: Path below the service's URL, percent-encoded.
        read: Function that makes the result from a successful response.
        again: Condition for sending the request again.
        policy: Limits of the retries, or None for those of the client.
        params: Parameters of the query string.
        body: Function that opens the body; called for each attempt.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    again: Again = "always"
    policy: RetryPolicy | None = None
    params: dict[str, str] = field(default_factory=dict[str, str])
    body: Callable[[], AbstractContextManager[OpenBody]] = lambda: nullcontext(OpenBody())


# Requests that follow one another: the answer to each is sent in before the next is taken.
Calls = Generator[Call[T], T, None]


def json_body(value: object) -> Callable[[], AbstractContextManager[OpenBody]]:
    """Return a function that opens a JSON body."""
    return lambda: nullcontext(OpenBody(json=value))


def content_body(
    chunks: Callable[[], Iterator[bytes]],
) -> Callable[[], AbstractContextManager[OpenBody]]:
    """Return a function that opens a JSON body that is generated while it is sent."""

    @contextmanager
    def opened() -> Generator[OpenBody]:
        yield OpenBody(content=chunks())

    return opened


def form_body(
    fields: Mapping[str, Any], files: Mapping[str, PictureSource]
) -> Callable[[], AbstractContextManager[OpenBody]]:
    """Return a function that opens a form with files, which are read while they are sent."""
    # Texts are sent unchanged and other values as JSON, which is how the service reads forms.
    plain = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in fields.items()
    }

    @contextmanager
    def opened() -> Generator[OpenBody]:
        with ExitStack() as stack:
            parts = {
                name: (picture_name(source), stack.enter_context(open_picture(source)))
                for name, source in files.items()
            }
            yield OpenBody(data=plain, files=parts)

    return opened


def read_as(kind: type[T]) -> Callable[[httpx.Response], T]:
    """Return a function that parses an answer of this type; for its errors see `read_by`."""
    return read_by(_adapter(kind).validate_json)


def read_by(validate_json: Callable[[bytes], T]) -> Callable[[httpx.Response], T]:
    """Return a function that parses an answer.

    It raises ServiceUnreachableError if the answer is invalid: that of some other server.
    """

    def read(response: httpx.Response) -> T:
        try:
            return validate_json(response.content)
        except ValidationError as error:
            raise foreign_answer(response, str(error)) from None

    return read


def foreign_answer(response: httpx.Response, why: str) -> ServiceUnreachableError:
    """Return the error for an answer that is not from this service."""
    return ServiceUnreachableError(
        f"{response.request.method} {response.request.url}: not a response of this service: {why}"
    )
