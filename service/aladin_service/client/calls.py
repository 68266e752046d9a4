"""Requests of the clients and the reading of their responses, independent of the HTTP client."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_service.client.connection import Again
from aladin_service.client.pictures import (
    PictureSource,
    again_with,
    given_files,
    open_picture,
    picture_name,
)
from aladin_service.client_errors import ServiceUnreachableError
from aladin_service.search.answers import (
    Deleted,
    IndexFields,
    Item,
    ItemPage,
    LiveIndexInfo,
    WordMapsAnswer,
)

ListDirection = Literal["desc", "asc"]

# What encodeURIComponent of a browser does not escape either, besides letters, digits and -_.~.
_PLAIN = "!*'()"
_RESOLVED = frozenset({"", ".", ".."})

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Photo(NamedTuple):
    """A picture file returned by the service."""

    data: bytes
    media_type: str


class ExplainedPair(NamedTuple):
    """An item of the index, and what it is compared with: exactly one of the other fields.

    Attributes:
        item_id: Id of a photo for a text, or of a text for a photo.
        text: Words of the query.
        query_id: Id of another item of the index.
        image: A photo that is not in the index; its file is read while it is sent.
        regions: Regions of that photo, or regions instead of a photo.
        box: Part of the photo that is compared, of the item `query_id` or of `image`.
    """

    item_id: str
    text: str | None = None
    query_id: str | None = None
    image: PictureSource | None = None
    regions: PictureSource | None = None
    box: Sequence[float] | None = None


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


def item_path(item_id: str) -> str:
    """Write an id of any characters as the end of a path, as `itemPath` of the page does.

    Slashes stay, because common proxies answer %2F with 404. Only beside an empty part, ``.`` or
    ``..`` they are escaped: clients and proxies would resolve such parts of a path.
    """
    parts = item_id.split("/")
    path = quote(parts[0], safe=_PLAIN)
    for before, part in pairwise(parts):
        slash = "%2F" if {before, part} & _RESOLVED else "/"
        path += slash + quote(part, safe=_PLAIN)
    return path


def item_call(target: Target, item_id: str) -> Call[Item]:
    """Look an item up."""
    return Call(method="GET", path=f"v1/items/{target}/{item_path(item_id)}", read=read_as(Item))


def list_call(
    target: Target,
    sort: str | None,
    order: ListDirection,
    filter: Mapping[str, Any] | None,
    limit: int | None,
    after: str | None,
) -> Call[ItemPage]:
    """List a page of items; the arguments are those of `AsyncAladinClient.list_items`."""
    wanted = {
        "limit": None if limit is None else str(limit),
        "after": after,
        "sort": sort,
        "order": None if order == "desc" else order,
        "filter": json.dumps(filter) if filter else None,
    }
    params = {name: value for name, value in wanted.items() if value is not None}
    return Call(method="GET", path=f"v1/items/{target}", read=read_as(ItemPage), params=params)


def fields_call() -> Call[IndexFields]:
    """Describe the metadata fields of the index."""
    return Call(method="GET", path="v1/index/fields", read=read_as(IndexFields))


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


def explain_call(pair: ExplainedPair) -> Call[WordMapsAnswer]:
    """Compare each word of a pair with every region.

    Raises:
        InputError: If not exactly one of text, another item and a photo is given.
    """
    return _pair_call("v1/explain", pair, read_as(WordMapsAnswer))


def drawing_call(pair: ExplainedPair) -> Call[bytes]:
    """Draw the evidence for a pair.

    Raises:
        InputError: If not exactly one of text, another item and a photo is given.
    """
    return _pair_call("v1/explain.png", pair, lambda response: response.content)


def _pair_call(path: str, pair: ExplainedPair, read: Callable[[httpx.Response], T]) -> Call[T]:
    files = given_files(pair.image, pair.regions)
    given = (pair.text is not None) + (pair.query_id is not None) + bool(files)
    if given != 1:
        raise InputError(f"expected exactly one of text, query_id and a photo, got {given}")
    if files:
        box = {} if pair.box is None else {"box": list(pair.box)}
        return Call(
            method="POST",
            path=path,
            read=read,
            again=again_with(files.values()),
            body=form_body({"id": pair.item_id} | box, files),
        )
    part = None if pair.box is None else ",".join(map(str, pair.box))
    named = {"id": pair.item_id, "text": pair.text, "query_id": pair.query_id, "box": part}
    params = {name: value for name, value in named.items() if value is not None}
    return Call(method="GET", path=path, read=read, params=params)
