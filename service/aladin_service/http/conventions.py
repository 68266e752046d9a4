"""Errors in the shapes of the conventions that some routes follow.

The routes of embeddings and models answer as OpenAI's do, those of re-ranking as Cohere's. What
rejects a request before it reaches its route (access control, limits of bodies) answers in the same
shape: the path decides.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, Field

_OPENAI = re.compile(r"/v1/(?:embeddings|models(?:/.*)?)", re.DOTALL)
_COHERE = frozenset({"/v1/rerank", "/v2/rerank", "/rerank"})

# Types of errors by status; of other statuses below 500 it is "invalid_request_error".
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

# A message about a field begins with its name, perhaps with a position in it.
_FIELD = re.compile(r"[a-z_]+(?:\[\d+\])?(?:\.\w+)*(?=: )")


class OpenAIErrorDetail(BaseModel):
    """One error, as OpenAI describes it."""

    message: str
    type: str = Field(description="invalid_request_error, authentication_error and so on.")
    param: str | None = Field(description="The field at fault, or null.")
    code: str | None


class OpenAIErrorBody(BaseModel):
    """The body of an error of the routes of embeddings and models."""

    error: OpenAIErrorDetail


class CohereErrorBody(BaseModel):
    """The body of an error of the routes of re-ranking."""

    id: str = Field(description="Id of the request.")
    message: str


def conventional_body(
    path: str, status: int, code: str, message: str, request_id: str
) -> dict[str, Any] | None:
    if path in _COHERE:
        return CohereErrorBody(id=request_id, message=message).model_dump()
    if not _OPENAI.fullmatch(path):
        return None
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    field = _FIELD.match(message) if kind == "invalid_request_error" else None
    detail = OpenAIErrorDetail(
        message=message, type=kind, param=field[0] if field else None, code=code
    )
    return OpenAIErrorBody(error=detail).model_dump()
