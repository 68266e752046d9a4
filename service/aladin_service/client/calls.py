"""Requests of the clients and the reading of their responses, independent of the HTTP client.

Picture files are not loaded into memory as a whole unless they already were.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_service.client.answers import Deleted, Item, LiveIndexInfo
from aladin_service.client.connection import Again
from aladin_service.client_errors import ServiceUnreachableError

# A picture as its bytes, the path of its file, or an open file, which is read from its beginning.
PictureSource = bytes | str | os.PathLike[str] | BinaryIO

# A multiple of 3, which base64 encodes without padding, so that chunks can be concatenated.
_CHUNK_BYTES = 3 * 2**14

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


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
        params: Parameters of the query string.
        body: Function that opens the body; called for each attempt.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    again: Again = "always"
    params: dict[str, str] = field(default_factory=dict[str, str])
    body: Callable[[], AbstractContextManager[OpenBody]] = lambda: nullcontext(OpenBody())


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
    """Return a function that opens a form with files, which are read while they are sent.

    Args:
        fields: Form fields that are not files.
        files: Files by field name.
    """
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


def read_as(model: type[M]) -> Callable[[httpx.Response], M]:
    """Return a function that parses an answer of this type; for its errors see `read_by`."""
    return read_by(model.model_validate_json)


def read_by(validate_json: Callable[[bytes], T]) -> Callable[[httpx.Response], T]:
    """Return a function that parses an answer.

    It raises ServiceUnreachableError if the answer is invalid: that of some other server.

    Args:
        validate_json: Function that parses and validates JSON; raises pydantic's ValidationError.
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


def item_path(*parts: str) -> str:
    """Build a path from parts that may contain any characters."""
    # Dots too: proxies and clients would resolve the parts . and .. otherwise.
    return "/".join(quote(part, safe="").replace(".", "%2E") for part in parts)


def item_call(target: Target, item_id: str) -> Call[Item]:
    """Look an item up."""
    return Call(method="GET", path=f"v1/items/{target}/{item_path(item_id)}", read=read_as(Item))


def delete_call(target: Target, item_id: str) -> Call[Deleted]:
    """Delete an item; a repetition would report that there is no such item."""
    return Call(
        method="DELETE",
        path=f"v1/items/{target}/{item_path(item_id)}",
        read=read_as(Deleted),
        again="unless_begun",
    )


def photo_call(item_id: str, size_px: int | None) -> Call[Photo]:
    """Fetch an item's photo."""

    def read(response: httpx.Response) -> Photo:
        return Photo(response.content, response.headers.get("content-type", ""))

    params = {} if size_px is None else {"size": str(size_px)}
    return Call(method="GET", path=f"v1/images/{item_path(item_id)}", read=read, params=params)


def index_call() -> Call[LiveIndexInfo]:
    """Describe the index."""
    return Call(method="GET", path="v1/index", read=read_as(LiveIndexInfo))


def probe_call(path: str, again: Again = "never") -> Call[None]:
    """Request only a status."""
    return Call(method="GET", path=path, read=lambda _: None, again=again)


def explain_call(
    item_id: str,
    text: str | None,
    query_id: str | None,
    image: PictureSource | None,
    regions: PictureSource | None,
) -> Call[bytes]:
    """Draw the evidence for an item of the index and a text, another item or a photo.

    Args:
        item_id: Id of a photo for a text, or of a text for a photo.
        text: Words of the query.
        query_id: Id of another item of the index.
        image: A photo that is not in the index; its file is read while it is sent.
        regions: Regions of that photo, or regions instead of a photo.

    Raises:
        InputError: If not exactly one of text, another item and a photo is given.
    """
    files = given_files(image, regions)
    given = (text is not None) + (query_id is not None) + bool(files)
    if given != 1:
        raise InputError(f"expected exactly one of text, query_id and a photo, got {given}")
    path = "v1/explain.png"
    if files:
        return Call(
            method="POST",
            path=path,
            read=lambda response: response.content,
            again=again_with(files.values()),
            body=form_body({"id": item_id}, files),
        )
    named = {"id": item_id, "text": text, "query_id": query_id}
    params = {name: value for name, value in named.items() if value is not None}
    return Call(method="GET", path=path, read=lambda response: response.content, params=params)


@contextmanager
def open_picture(source: PictureSource) -> Generator[BinaryIO]:
    """Open a picture for one request; a file that the caller opened stays open.

    Raises:
        OSError: If the file cannot be opened.
    """
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            yield file
    else:
        if source.seekable():
            source.seek(0)
        yield source


def can_be_sent_again(source: PictureSource) -> bool:
    """Return whether a picture can be read more than once."""
    return isinstance(source, (bytes, str, os.PathLike)) or source.seekable()


def again_with(files: Iterable[PictureSource]) -> Again:
    """Return when a harmless request may be sent again: never if it has a file that cannot."""
    return "always" if all(map(can_be_sent_again, files)) else "never"


def given_files(
    image: PictureSource | None, regions: PictureSource | None
) -> dict[str, PictureSource]:
    """Return the files of a query or an item that are given, by field."""
    files = {"image": image, "regions": regions}
    return {name: source for name, source in files.items() if source is not None}


def picture_name(source: PictureSource) -> str:
    """Return the file's name, for the form; it does not affect the answer."""
    return Path(source).name if isinstance(source, (str, os.PathLike)) else "image"


def picture_bytes(source: PictureSource) -> int | None:
    """Return the size of a picture without reading it, or None if that is impossible.

    Raises:
        OSError: If the file does not exist.
    """
    if isinstance(source, bytes):
        return len(source)
    if isinstance(source, (str, os.PathLike)):
        return Path(source).stat().st_size
    return source.seek(0, io.SEEK_END) if source.seekable() else None


def base64_chunks(source: PictureSource) -> Iterator[bytes]:
    """Read a picture in chunks, as base64.

    Raises:
        OSError: If the file cannot be read.
    """
    with open_picture(source) as file:
        rest = b""
        while chunk := file.read(_CHUNK_BYTES):
            whole = rest + chunk
            end = len(whole) - len(whole) % 3  # a pipe gives what it has, of any length
            rest = whole[end:]
            yield base64.b64encode(whole[:end])
        yield base64.b64encode(rest)


def json_list_chunks(
    name: str, entries: Iterable[tuple[Mapping[str, Any], Mapping[str, PictureSource]]]
) -> Iterator[bytes]:
    """Write a JSON object with one list, whose entries may have files, in chunks.

    Args:
        name: Name of the list.
        entries: Fields of each entry (at least one), and its files by field.

    Raises:
        OSError: If a file cannot be read.
    """
    yield b'{"' + name.encode() + b'":['
    for place, (fields, files) in enumerate(entries):
        written = json.dumps(fields).encode()
        yield b"," + written[:-1] if place else written[:-1]
        for field_name, source in files.items():
            yield b',"' + field_name.encode() + b'":"'
            yield from base64_chunks(source)
            yield b'"'
        yield b"}"
    yield b"]}"
