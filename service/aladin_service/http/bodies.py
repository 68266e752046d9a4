"""Request bodies: JSON objects and multipart forms, parsed within limits of time and memory.

A parsed JSON body takes up to thirty times the memory of its text, and a body that is invalid in a
million places takes longer to describe than to parse. The size of the text, excluding base64
pictures, and the number of values are therefore checked before the body is parsed.

JSON and multipart bodies of one route are validated by the same pydantic model.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast

from fastapi import Request
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import from_json
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from aladin_network.errors import InputError
from aladin_service.failures import MAX_FAULTS
from aladin_service.http.errors import ContentTypeError, JsonTooLargeError
from aladin_service.http.shared_state import ServiceState

# Smaller bodies are parsed faster than a task is passed to another thread.
_LARGE_BYTES = 256 * 2**10
# A full batch of queries, each with the largest filter, has 270,000 values.
_MAX_VALUES = 400_000
# Every value and every name follows one of them; those inside texts are counted, too.
_MARKS = (b",", b":", b"[", b"{")
_CHUNK_BYTES = 2**20
# Matches up to the first byte of a base64 file, whose text has no escaped quotation mark.
_PICTURE = re.compile(rb'"(?:image|regions)"[ \t\r\n]*+:[ \t\r\n]*+"')

_DEFINED = "#/$defs/"

P = ParamSpec("P")
T = TypeVar("T")

# One more than the number of fields would suffice; a larger limit lets the error name the unknown
# ones.
_MAX_FORM_FIELDS = 26
# File fields of a form: a picture, and the regions that a detector found in it.
_FILES = ("image", "regions")


class JsonObject(NamedTuple):
    """A parsed body.

    Attributes:
        fields: Fields, not validated yet.
        num_bytes: Length of the body's text.
    """

    fields: dict[str, Any]
    num_bytes: int


def need_json(request: Request) -> None:
    """Refuse a body of another type, so that no form of another site's page is taken."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ContentTypeError(content_type, "application/json")


async def read_json_object(
    request: Request, service: ServiceState, *, many: bool = False
) -> JsonObject:
    """Read a request's body as a JSON object, regardless of its content type.

    With `many` it may hold a list of queries or items, and is limited by its number of values
    alone, not by `max_json_bytes`.
    """
    parts: list[bytes] = []
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"".join(parts)
    max_bytes = len(body) if many else service.settings.max_json_bytes
    fields = await run_sized(service, len(body), _parse, body, max_bytes)
    return JsonObject(fields, len(body))


async def run_sized(
    service: ServiceState,
    num_bytes: int,
    work: Callable[P, T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a function directly for a small body, otherwise in a thread beside the event loop.

    Large bodies take turns, which bounds the memory that parsing takes in all.
    """
    if num_bytes <= _LARGE_BYTES:
        return work(*args, **kwargs)
    async with service.large_bodies:
        return await asyncio.to_thread(work, *args, **kwargs)


def _parse(body: bytes, max_bytes: int) -> dict[str, Any]:
    if len(body) > max_bytes and _bytes_besides_pictures(body, max_bytes) > max_bytes:
        raise JsonTooLargeError(
            f"{max_bytes} bytes of JSON besides photos and regions (ALADIN_MAX_JSON_BYTES)"
        )
    if len(body) > _LARGE_BYTES:
        check_values(body, _MAX_VALUES)
    try:
        # Values rarely repeat, names do.
        fields = from_json(body, cache_strings="keys")
    except ValueError as error:
        raise InputError(f"Invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InputError("Input should be an object")
    return cast(dict[str, Any], fields)


def _bytes_besides_pictures(body: bytes, most: int) -> int:
    """Count the bytes outside base64 pictures; beyond `most` the count is not exact.

    No more than `most` bytes are searched for pictures, and a picture's end is found at the speed
    of memory.
    """
    besides = place = 0
    while besides <= most:
        found = _PICTURE.search(body, place, place + most - besides)
        if found is None:
            return besides + len(body) - place
        besides += found.end() - place
        end = body.find(b'"', found.end())
        place = len(body) if end < 0 else end
    return besides


def check_values(body: bytes, most: int) -> None:
    count = 0
    for start in range(0, len(body), _CHUNK_BYTES):
        count += sum(body.count(mark, start, start + _CHUNK_BYTES) for mark in _MARKS)
        if count > most:
            raise JsonTooLargeError(f"{most} names and values in JSON")


class StrictBody(BaseModel):
    """A body, or an entry of its list, that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_unknown_fields(cls, fields: object) -> object:
        """Report many unknown fields as one error; pydantic reports one for each."""
        known = cls.model_fields.keys()
        if isinstance(fields, dict) and len(fields) > len(known) + MAX_FAULTS:
            unknown = cast(dict[str, Any], fields).keys() - known
            raise ValueError(f"{len(unknown)} unknown fields; known are {', '.join(known)}")
        return cast(object, fields)


class Body(NamedTuple):
    """The fields of a request.

    Attributes:
        kind: Kind of the body: the values of a form are texts; those of JSON have their own types.
        fields: Fields, not validated yet.
        num_bytes: Length of the JSON that is validated; 0 for a form, whose files are validated as
            received.
    """

    kind: Literal["json", "form"]
    fields: dict[str, Any]
    num_bytes: int


async def read_body(
    request: Request, service: ServiceState, json_fields: Collection[str], *, many: bool = False
) -> Body:
    """Read a request's body completely and within the limit.

    `json_fields` are the form fields whose value is JSON; "image" and "regions" are files.
    """
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        json = await read_json_object(request, service, many=many)
        return Body("json", json.fields, json.num_bytes)
    if kind == "multipart/form-data":
        return Body("form", await _read_form(request, json_fields), 0)
    raise ContentTypeError(content_type)


def request_docs(*json_schemas: dict[str, Any], form_title: str) -> dict[str, Any]:
    """Describe a manually parsed body for the OpenAPI document."""
    json_schemas = tuple(map(_whole, json_schemas))
    schema = json_schemas[0] if len(json_schemas) == 1 else {"anyOf": list(json_schemas)}
    own = json_schemas[0]["properties"]
    files = {
        name: {key: own[name][key] for key in ("description",) if key in own[name]}
        | {"type": "string", "format": "binary"}
        for name in _FILES
        if name in own
    }
    form = {**json_schemas[0], "title": form_title, "properties": own | files}
    docs = json_request_docs(schema)
    docs["requestBody"]["content"]["multipart/form-data"] = {"schema": form}
    return docs


def json_request_docs(schema: dict[str, Any]) -> dict[str, Any]:
    """Describe a manually parsed JSON body for the OpenAPI document."""
    content: dict[str, Any] = {"application/json": {"schema": _whole(schema)}}
    return {"requestBody": {"required": True, "content": content}}


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """Put the schemas that a schema defines where it refers to them."""

    def replaced(node: Any, defined: dict[str, Any]) -> Any:
        if isinstance(node, list):
            return [replaced(each, defined) for each in cast(list[Any], node)]
        if not isinstance(node, dict):
            return node
        fields = cast(dict[str, Any], node)
        known = defined | fields.get("$defs", {})
        target = fields.get("$ref", "")
        if target.startswith(_DEFINED):
            return replaced(known[target.removeprefix(_DEFINED)], known)
        return {name: replaced(each, known) for name, each in fields.items() if name != "$defs"}

    return replaced(schema, {})


async def _read_form(request: Request, json_fields: Collection[str]) -> dict[str, Any]:
    # Whole and within the limit before it is taken apart.
    _check_delimiters(await request.body(), request.headers["content-type"])
    try:
        async with request.form(max_files=len(_FILES), max_fields=_MAX_FORM_FIELDS) as form:
            return {name: await _read_field(form, name, json_fields) for name in form}
    except HTTPException as error:  # what starlette makes of a malformed form
        raise InputError(f"invalid multipart body: {error.detail}") from None


def _check_delimiters(body: bytes, content_type: str) -> None:
    """Reject a form by the number of its delimiters, and by the white space behind one.

    The parser works on both byte by byte, on the event loop.
    """
    _, options = parse_options_header(content_type)
    delimiter = b"\r\n--" + options.get(b"boundary", b"")
    most = _MAX_FORM_FIELDS + len(_FILES)
    if body.count(delimiter) > most:
        raise InputError(f"invalid multipart body: expected at most {most} parts")
    if re.search(re.escape(delimiter) + rb"[ \t]{100}", body):
        raise InputError("invalid multipart body: white space behind a boundary")


async def _read_field(form: FormData, name: str, json_fields: Collection[str]) -> object:
    values = form.getlist(name)
    if len(values) > 1:
        raise InputError(f"{name}: given {len(values)} times")
    value = values[0]
    if name in _FILES:
        if not isinstance(value, UploadFile):
            raise InputError(f"{name}: expected a file, got a plain value")
        return await value.read()
    if isinstance(value, UploadFile):
        raise InputError(f"{name}: expected a plain value, got a file")
    if name in json_fields:
        try:
            return from_json(value)  # as deep as a body in JSON may be, and no deeper
        except ValueError:
            raise InputError(f"{name}: not JSON") from None
    return value
