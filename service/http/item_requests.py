"""From the body of a request that adds items to the items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from pydantic import ConfigDict, FailFast, Field, ValidationError, model_validator

from aladin.errors import InputError
from service.http.access.rate_limits import charge
from service.http.bodies import Body, StrictBody, Upload, read_body, request_docs
from service.http.errors import invalid_input
from service.http.json_body import run_sized
from service.http.requests import REGIONS_DESCRIPTION
from service.http.state import Service
from service.intake.photo_fetcher import PhotoFetcher
from service.intake.photo_url import MAX_URL_CHARS
from service.item_changes import PhotoToAdd, TextToAdd

MAX_ID_CHARS = 1000
MAX_URI_CHARS = 10_000


class NewItem(StrictBody):
    """An item to add: an image with `image`, `image_url` or `regions`, or a text with `text`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"id": "snow-1", "text": "two dogs in the snow", "metadata": {"year": 2024}}
            ]
        },
    )

    id: str = Field(min_length=1, max_length=MAX_ID_CHARS, description="Yours; kept as it is.")
    image: Upload | None = Field(default=None, description="A picture file.")
    image_url: str | None = Field(
        default=None,
        max_length=MAX_URL_CHARS,
        description="Where the picture file is, on a host that the service fetches photos from;"
        " there is none unless it was set up so.",
    )
    regions: Upload | None = Field(
        default=None,
        description=REGIONS_DESCRIPTION + " With the photo or without, which is then not shown.",
    )
    text: str | None = Field(
        default=None, description="The text itself, or a caption that is shown with the image."
    )
    uri: str | None = Field(
        default=None,
        max_length=MAX_URI_CHARS,
        description="Shown with an image; null takes the id. Texts have none.",
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="JSON values by field name, for filters."
    )

    @model_validator(mode="after")
    def _one_image(self) -> NewItem:
        if self.image is not None and self.image_url is not None:
            raise ValueError("expected one of image and image_url, got both")
        return self

    def words(self) -> TextToAdd:
        """Return the item as one of the texts.

        Raises:
            InputError: it has no text, or what only images have.
        """
        if self.text is None:
            raise InputError(f"item {self.id!r}: expected a text among the texts, got none")
        if any(part is not None for part in (self.image, self.image_url, self.regions, self.uri)):
            raise InputError(f"item {self.id!r}: a text has no image, no regions and no uri")
        return TextToAdd(id=self.id, text=self.text, metadata=self.metadata)


class NewItemList(StrictBody):
    """Several items, added in one step: all of them or none."""

    # Validation ends at the first wrong item.
    items: Annotated[list[NewItem], FailFast()] = Field(min_length=1)


async def read_new_items(request: Request, service: Service) -> list[NewItem]:
    """Read a request with one item, JSON or multipart, or with a JSON list of them.

    Raises:
        ContentTypeError: it is neither.
        InputError: it is broken, has too many items, or a field is unknown, missing or impossible.
        BodyTooLargeError: it is over the limit (by the middleware, while it is read).
        RateLimitedError: the client may not add so many items now.
    """
    body = await read_body(request, service, json_fields=("metadata",), many=True)
    items = body.fields.get("items") if body.kind == "json" else None
    if isinstance(items, list):
        count, limit = len(cast(list[object], items)), service.settings.max_items
        if count > limit:
            raise InputError(f"items: expected at most {limit} in a request, got {count}")
        await charge(request, count)
    try:
        return await run_sized(service, body.num_bytes, _validate, body)
    except ValidationError as error:
        raise invalid_input(error) from None


def _validate(body: Body) -> list[NewItem]:
    strict = body.kind == "json"
    if strict and "items" in body.fields:
        return NewItemList.model_validate(body.fields, strict=True).items
    return [NewItem.model_validate(body.fields, strict=strict)]


async def photos_to_add(items: Sequence[NewItem], fetcher: PhotoFetcher) -> tuple[PhotoToAdd, ...]:
    """Return items as images.

    Args:
        items: of a request.
        fetcher: of the photos that are given by their URL.

    Raises:
        InputError: an item has no image.
        AladinError: as `PhotoFetcher.fetch`.
    """
    for item in items:
        if (item.image, item.image_url, item.regions) == (None, None, None):
            raise InputError(f"item {item.id!r}: expected an image among the images, got none")
    urls = [item.image_url for item in items if item.image_url is not None]
    fetched = iter(await fetcher.fetch(urls) if urls else ())
    return tuple(
        PhotoToAdd(
            id=item.id,
            data=item.image if item.image_url is None else next(fetched),
            regions=item.regions,
            uri=item.uri,
            text=item.text,
            metadata=item.metadata,
        )
        for item in items
    )


NewItems = Annotated[list[NewItem], Depends(read_new_items)]

_SCHEMA = NewItem.model_json_schema()
_LIST_SCHEMA: dict[str, Any] = {
    "title": NewItemList.__name__,
    "type": "object",
    "description": NewItemList.__doc__,
    "properties": {"items": {"type": "array", "minItems": 1, "items": _SCHEMA}},
    "required": ["items"],
    "additionalProperties": False,
}
NEW_ITEMS_DOCS = request_docs(_SCHEMA, _LIST_SCHEMA, form_title="NewItemForm")
