"""Request bodies that are a JSON object, parsed and validated within bounds of time and memory.

A parsed body takes up to thirty times the memory of its text, and one that is invalid in a million
places takes longer to describe than to parse. So the size of the text, without the pictures in it,
and the number of values are checked before the parser sees the body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from fastapi import Request
from pydantic_core import from_json

from aladin.errors import InputError
from service.http.errors import JsonTooLargeError
from service.http.state import ServiceState

# Smaller bodies are parsed faster than another thread is reached.
_LARGE_BYTES = 256 * 2**10
# A full batch of queries, each with the largest filter, has 270,000.
_MAX_VALUES = 400_000
# Every value and every name follows one of them; those inside of texts are counted, too.
_MARKS = (b",", b":", b"[", b"{")
_CHUNK_BYTES = 2**20
# Up to the first byte of a file in base64, whose text has no escaped quotation mark.
_PICTURE = re.compile(rb'"(?:image|regions)"[ \t\r\n]*+:[ \t\r\n]*+"')

P = ParamSpec("P")
T = TypeVar("T")


class JsonObject(NamedTuple):
    """A parsed body.

    Attributes:
        fields: not validated yet.
        num_bytes: length of the body's text.
    """

    fields: dict[str, Any]
    num_bytes: int


async def read_json_object(
    request: Request, service: ServiceState, *, many: bool = False
) -> JsonObject:
    """Read a request's body as a JSON object, whatever its content type is.

    Args:
        request: whose body is read whole.
        service: has the limits.
        many: whether the body may hold a list of queries or items; it is then limited by its
            number of values alone, not by `max_json_bytes`.

    Raises:
        InputError: the body is not a JSON object.
        BodyTooLargeError: the body is over the limit (raised by the middleware while it is read),
            or is too large besides its pictures, or has too many values.
    """
    body = await request.body()
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
    """Call a function here if it works on a small body, else in a thread beside the event loop.

    Large bodies take turns, which bounds the memory that parsing takes in all.

    Args:
        service: has the turns.
        num_bytes: length of the body that the function works on.
        work: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        What the function returns.
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
    if len(body) > _LARGE_BYTES and _has_more_values(body, _MAX_VALUES):
        raise JsonTooLargeError(f"{_MAX_VALUES} names and values in JSON")
    try:
        # Texts rarely repeat, names do.
        fields = from_json(body, cache_strings="keys")
    except ValueError as error:
        raise InputError(f"Invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InputError("Input should be an object")
    return cast(dict[str, Any], fields)


def _bytes_besides_pictures(body: bytes, most: int) -> int:
    """Count the bytes outside of pictures in base64; beyond `most` the count is not exact.

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


def _has_more_values(body: bytes, most: int) -> bool:
    count = 0
    for start in range(0, len(body), _CHUNK_BYTES):
        count += sum(body.count(mark, start, start + _CHUNK_BYTES) for mark in _MARKS)
        if count > most:
            return True
    return False
