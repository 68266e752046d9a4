"""From the body of a search request to a query and its options."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from aladin.errors import InputError
from service.http.errors import ContentTypeError, describe_faults
from service.queries import ItemQuery, PhotoQuery, Query, SearchOptions, TextQuery

MAX_K = 1000
MAX_OFFSET = 10_000
MAX_CANDIDATES = 10_000
# Each value is a look-up of its own.
MAX_FILTER_VALUES = 1000

# One more than there are fields would do; some room lets the error name the unknown ones.
_MAX_FORM_FIELDS = 20


def _decode_base64(value: object) -> object:
    """Decode base64; the bytes of an uploaded file pass as they are."""
    if not isinstance(value, str):
        return value
    try:
        # Tools wrap base64 into lines, so white space is no fault.
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None


Photo = Annotated[
    bytes,
    BeforeValidator(_decode_base64),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]


class SearchBody(BaseModel):
    """What to search for, exactly one of `text`, `image` and `id`, and the options."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, description="Words to search for.")
    image: Photo | None = Field(default=None, description="A picture file.")
    id: str | None = Field(default=None, description="An item of the index.")
    k: int = Field(default=10, ge=1, le=MAX_K, description="Hits wanted.")
    offset: int = Field(default=0, ge=0, le=MAX_OFFSET, description="Hits to skip.")
    candidates: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CANDIDATES,
        description="Size of the first stage's result; null takes the index's tuned value.",
    )
    rerank: bool = Field(default=True, description="Order the candidates by the second stage.")
    fusion: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Weight of the alignment score; null takes the fitted one, 1 is the papers'.",
    )
    explain: bool = Field(default=False, description="Say which word matched which region.")
    filter: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Metadata that a hit must have."
    )

    @field_validator("filter")
    @classmethod
    def _small_filter(cls, value: dict[str, Any]) -> dict[str, Any]:
        count = sum(len(each) if isinstance(each, list | dict) else 1 for each in value.values())
        if count > MAX_FILTER_VALUES:
            raise ValueError(f"expected at most {MAX_FILTER_VALUES} values, got {count}")
        return value

    @model_validator(mode="after")
    def _one_query(self) -> SearchBody:
        given = [name for name in ("text", "image", "id") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"expected exactly one of text, image and id, got {got}")
        return self

    def query(self) -> Query:
        """Return what to search for."""
        if self.text is not None:
            return TextQuery(self.text)
        if self.image is not None:
            return PhotoQuery(self.image)
        assert self.id is not None  # by _one_query
        return ItemQuery(self.id)

    def options(self) -> SearchOptions:
        """Return how to search."""
        return SearchOptions(
            k=self.k,
            offset=self.offset,
            candidates=self.candidates,
            rerank=self.rerank,
            fusion=self.fusion,
            explain=self.explain,
            filter=self.filter,
        )


async def read_search_body(request: Request) -> SearchBody:
    """Read a search request, JSON or multipart.

    Raises:
        ContentTypeError: it is neither.
        InputError: it is broken, or a field is unknown, missing or impossible.
        BodyTooLargeError: it is over the limit (by the middleware, while it is read).
    """
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            # Strict: the text "10" is no number in JSON.
            return SearchBody.model_validate_json(await request.body(), strict=True)
        if kind == "multipart/form-data":
            return SearchBody.model_validate(await _read_form(request))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise InputError(describe_faults(faults)) from None
    raise ContentTypeError(content_type)


SearchRequest = Annotated[SearchBody, Depends(read_search_body)]

# The body is read by hand, so that JSON and multipart can share a route; this is its description.
SEARCH_REQUEST_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": SearchBody.model_json_schema()},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": SearchBody.model_json_schema()["properties"]
                    | {"image": {"type": "string", "format": "binary"}},
                    "additionalProperties": False,
                }
            },
        },
    }
}


async def _read_form(request: Request) -> dict[str, Any]:
    await request.body()  # whole and within the limit before it is taken apart
    try:
        async with request.form(max_files=1, max_fields=_MAX_FORM_FIELDS) as form:
            return {name: await _read_field(form, name) for name in form}
    except HTTPException as error:  # what starlette makes of a malformed form
        raise InputError(f"the multipart body cannot be read: {error.detail}") from None


async def _read_field(form: FormData, name: str) -> object:
    values = form.getlist(name)
    if len(values) > 1:
        raise InputError(f"{name}: given {len(values)} times")
    value = values[0]
    if name == "image":
        if not isinstance(value, UploadFile):
            raise InputError("image: expected a file, got a plain value")
        return await value.read()
    if isinstance(value, UploadFile):
        raise InputError(f"{name}: expected a plain value, got a file")
    if name == "filter":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise InputError("filter: not JSON") from None
    return value
