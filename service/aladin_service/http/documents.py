"""Documents of a request: texts, photos and items in the forms of Cohere, Jina, OpenAI and vLLM.

A document is a text, the data URL of a photo, or an object with one of `text`, `image` (a data URL
or base64) and `id`; `{"type": "image_url", "image_url": {"url": ...}}`
and `{"type": "text", "text": ...}`, the parts of a message, are accepted as well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel, Field

from aladin_index.search.request import DATA_URL, decode_base64, one_of
from aladin_network.errors import (
    AladinError,
    ImageError,
    ImageTooLargeError,
    InputError,
    OverloadedError,
)
from aladin_service.http.errors import MAX_ANSWER_BYTES, AnswerTooLargeError, UnknownModelError
from aladin_service.http.shared_state import ServiceState
from aladin_service.http.turns import Turns
from aladin_service.observe.logs import CURRENT_REQUEST
from aladin_service.search.job import (
    Document,
    EncodedDocument,
    EncodeJob,
    ItemQuery,
    PhotoQuery,
    TextQuery,
)
from aladin_service.search.task_group import task_group
from aladin_service.work.jobs import CountPixels, DescribeModel

# Name of the model of the live index, whichever it is.
ANY_MODEL = "aladin"

# Attempts to answer a request with one model, while the model of the live index is replaced.
_ATTEMPTS = 3
_RETRY_AFTER_S = 1.0

_MAX_ID_CHARS = 4096
_KINDS: dict[type, str] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    type(None): "null",
}


class SkippedDocument(BaseModel):
    """A document that cannot be used."""

    index: int = Field(description="Position of the document in the request.")
    reason: str


SKIPPED_FIELD = Field(
    default=None, description="Documents that cannot be used; missing if there are none."
)


GivenDocument = Document | ItemQuery

_PHOTO_SCHEMA: dict[str, Any] = {
    "type": "string",
    "description": "A picture file: a data URL or base64.",
}


def document_schema(*, items: bool) -> dict[str, Any]:
    """Describe a document for the OpenAPI document."""
    fields: dict[str, dict[str, Any]] = {"text": {"type": "string"}, "image": _PHOTO_SCHEMA}
    if items:
        fields["id"] = {
            "type": "string",
            "maxLength": _MAX_ID_CHARS,
            "description": "An item of the index, an image before a text of the same id.",
        }
    forms: list[dict[str, Any]] = [
        {"type": "string", "description": "A text, or the data URL of a picture file."}
    ]
    for name, schema in fields.items():
        forms.append(
            {
                "type": "object",
                "properties": {name: schema},
                "required": [name],
                "additionalProperties": False,
            }
        )
    return {"anyOf": forms}


def read_document(value: object, where: str, *, items: bool) -> GivenDocument:
    """Read one document of a JSON body, which may be an item of the index with `items`.

    `where` names it in errors.
    """
    if isinstance(value, str):
        is_photo = value.startswith("data:image/") and DATA_URL.match(value)
        return _photo(value, where) if is_photo else TextQuery(value)
    known = ("text", "image", "id") if items else ("text", "image")
    expected = f"{where}: expected a text, or an object with one of {', '.join(known)}"
    if not isinstance(value, dict):
        raise InputError(f"{expected}, got {_kind(value)}")
    fields = _plain(cast(dict[str, object], value), where)
    unknown = sorted(fields.keys() - set(known))
    if unknown:
        raise InputError(f"{where}: unknown field {unknown[0][:100]!r}; {expected}")
    try:
        name = one_of({each: fields.get(each) for each in known})
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    content = fields[name]
    if not isinstance(content, str):
        raise InputError(f"{where}.{name}: expected a string, got {_kind(content)}")
    if name == "id" and len(content) > _MAX_ID_CHARS:
        raise InputError(f"{where}.id: expected at most {_MAX_ID_CHARS} characters")
    if name == "image":
        return _photo(content, where)
    return TextQuery(content) if name == "text" else ItemQuery(content)


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "an object")


def _plain(fields: dict[str, object], where: str) -> dict[str, object]:
    """Return the fields of a part of a message as `text` or `image`; others as they are."""
    kind = fields.get("type")
    if kind == "text":
        return {name: value for name, value in fields.items() if name != "type"}
    if kind != "image_url":
        return fields
    photo = fields.get("image_url")
    url = cast(dict[str, object], photo).get("url") if isinstance(photo, dict) else photo
    if not isinstance(url, str):
        raise InputError(f"{where}.image_url: expected an object with url")
    return {"image": url}


def _photo(text: str, where: str) -> PhotoQuery:
    expected = f"{where}: expected a data URL of an image, or base64"
    if text.startswith(("http://", "https://")):
        raise InputError(f"{expected}, got a URL; this service does not fetch photos")
    try:
        data = decode_base64(text)
    except ValueError:
        raise InputError(expected) from None
    return PhotoQuery(data, source=where)


def read_documents(values: object, name: str, *, items: bool) -> list[GivenDocument]:
    listed = cast(list[object], values)
    return [read_document(each, f"{name}[{n}]", items=items) for n, each in enumerate(listed)]


async def check_pixels(
    service: ServiceState, documents: Sequence[GivenDocument], needed: tuple[str, ...] = ()
) -> None:
    photos = tuple(each for each in documents if isinstance(each, PhotoQuery))
    most = service.settings.max_document_pixels
    if photos and await service.workers.call(CountPixels(photos, most, needed)) > most:
        raise ImageTooLargeError(
            f"{len(photos)} photos",
            f"more than {most} pixels together (ALADIN_MAX_DOCUMENT_PIXELS)",
        )


async def check_model(service: ServiceState, name: str | None) -> None:
    if name not in (None, ANY_MODEL):
        served = (await service.workers.call(DescribeModel())).name
        if name != served:
            raise UnknownModelError((name or "")[:100], served)


async def encode_documents(
    service: ServiceState, documents: Sequence[Document], how: EncodeJob
) -> list[EncodedDocument | InputError]:
    """Encode documents; they enter the queues as places become free."""
    # A single document is admitted like a query; only larger requests are limited in number.
    room = service.batch_room.request() if len(documents) > 1 else nullcontext()
    with room:
        for _ in range(_ATTEMPTS):
            encoded = await _encode_all(service, documents, how)
            models = {each.model_id for each in encoded if isinstance(each, EncodedDocument)}
            if len(models) <= 1:
                break
        else:
            raise OverloadedError(_RETRY_AFTER_S)
    return encoded


async def _encode_all(
    service: ServiceState, documents: Sequence[Document], how: EncodeJob
) -> list[EncodedDocument | InputError]:
    results: dict[int, EncodedDocument | InputError] = {}
    entries = iter(enumerate(documents))
    turns = Turns(service.batch_room)
    received_s = time.monotonic()
    written = 0

    async def feed() -> None:
        nonlocal written
        for place, document in entries:
            job = replace(how, document=document, received_s=received_s)
            try:
                if len(documents) == 1:
                    results[place] = await service.workers.encode(job)
                    continue
                async with service.batch_room.documents:
                    found = await turns.enter(lambda job=job: service.workers.encode(job))
                written += len(found.written)
                if written > MAX_ANSWER_BYTES:
                    raise AnswerTooLargeError
                results[place] = found
            except InputError as error:
                results[place] = error

    async with task_group() as group:
        for _ in range(min(len(documents), service.settings.max_batch)):
            group.create_task(feed())
    return [results[place] for place in range(len(documents))]


def skipped_documents(
    found: Sequence[object], name: str, documents: Sequence[Document | ItemQuery]
) -> list[SkippedDocument] | None:
    errors = {n: each for n, each in enumerate(found) if isinstance(each, AladinError)}
    if errors and len(errors) == len(found):
        if isinstance(documents[0], TextQuery):  # the errors of photos and items name them
            errors[0].args = (f"{name}[0]: {errors[0]}",)
        raise errors[0]
    return [
        SkippedDocument(
            index=place, reason=error.reason if isinstance(error, ImageError) else str(error)
        )
        for place, error in errors.items()
    ] or None


def count_documents(service: ServiceState, values: object, name: str) -> int:
    """Count the documents of a parsed body before they are looked at, also for the log."""
    if not isinstance(values, list):
        raise InputError(f"{name}: expected a list")
    count, limit = len(cast(list[object], values)), service.settings.max_documents
    if not 1 <= count <= limit:
        raise InputError(
            f"{name}: expected 1 to {limit} in a request (ALADIN_MAX_DOCUMENTS), got {count}"
        )
    record = CURRENT_REQUEST.get()
    if record is not None:
        record.documents = count
    return count
