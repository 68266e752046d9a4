"""From the body of a request that adds items to the items."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aladin.errors import InputError
from service.http.bodies import Photo, read_body, request_docs
from service.http.errors import describe_faults
from service.http.state import Service
from service.item_changes import PhotoToAdd, TextToAdd

MAX_ID_CHARS = 1000


class NewItem(BaseModel):
    """An item to add: among the images one with `image`, among the texts one with `text`."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1, max_length=MAX_ID_CHARS, description="Yours; kept as it is.")
    image: Photo | None = Field(default=None, description="A picture file.")
    text: str | None = Field(
        default=None, description="The text itself, or a caption that is shown with the image."
    )
    uri: str | None = Field(
        default=None, description="Shown with an image; null takes the id. Texts have none."
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="JSON values by field name, for filters."
    )

    def photo(self) -> PhotoToAdd:
        """Return the item as one of the images.

        Raises:
            InputError: it has no image.
        """
        if self.image is None:
            raise InputError(f"item {self.id!r}: expected an image among the images, got none")
        return PhotoToAdd(
            id=self.id, data=self.image, uri=self.uri, text=self.text, metadata=self.metadata
        )

    def words(self) -> TextToAdd:
        """Return the item as one of the texts.

        Raises:
            InputError: it has no text, or what only images have.
        """
        if self.text is None:
            raise InputError(f"item {self.id!r}: expected a text among the texts, got none")
        if self.image is not None or self.uri is not None:
            raise InputError(f"item {self.id!r}: a text has no image and no uri")
        return TextToAdd(id=self.id, text=self.text, metadata=self.metadata)


class NewItemList(BaseModel):
    """Several items, added in one step: all of them or none."""

    model_config = ConfigDict(extra="forbid")

    items: list[NewItem] = Field(min_length=1)


async def read_new_items(request: Request, service: Service) -> list[NewItem]:
    """Read a request with one item, JSON or multipart, or with a JSON list of them.

    Raises:
        ContentTypeError: it is neither.
        InputError: it is broken, has too many items, or a field is unknown, missing or impossible.
        BodyTooLargeError: it is over the limit (by the middleware, while it is read).
    """
    body = await read_body(request, json_fields=("metadata",))
    strict = body.kind == "json"
    try:
        if strict and "items" in body.fields:
            items = NewItemList.model_validate(body.fields, strict=True).items
        else:
            items = [NewItem.model_validate(body.fields, strict=strict)]
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise InputError(describe_faults(faults)) from None
    if len(items) > service.settings.max_items:
        limit = service.settings.max_items
        raise InputError(f"items: expected at most {limit} in a request, got {len(items)}")
    return items


NewItems = Annotated[list[NewItem], Depends(read_new_items)]

_SCHEMA = NewItem.model_json_schema()
_LIST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": NewItemList.__doc__,
    "properties": {"items": {"type": "array", "minItems": 1, "items": _SCHEMA}},
    "required": ["items"],
    "additionalProperties": False,
}
NEW_ITEMS_DOCS = request_docs(_SCHEMA, _LIST_SCHEMA, form_schema=_SCHEMA)
