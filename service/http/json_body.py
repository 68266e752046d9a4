"""Request bodies that are a JSON object."""

from __future__ import annotations

from typing import Any, cast

from fastapi import Request
from pydantic_core import from_json

from aladin.errors import InputError


async def read_json_object(request: Request) -> dict[str, Any]:
    """Read a request's body as a JSON object, whatever type it says that it is of.

    Raises:
        InputError: it is none.
        BodyTooLargeError: it is over the limit (by the middleware, while it is read).
    """
    body = await request.body()
    try:
        fields = from_json(body)
    except ValueError as error:
        raise InputError(f"Invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InputError("Input should be an object")
    return cast(dict[str, Any], fields)
