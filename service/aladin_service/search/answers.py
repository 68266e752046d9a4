"""Items and evidence as the HTTP service and its clients exchange them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from aladin_index.search.request import REGIONS_DESCRIPTION, UploadedFile
from aladin_index.search.results import Box, MappedQueryRegion, MappedWord, Stack, TotalMs

MAX_ID_CHARS = 1000
MAX_URI_CHARS = 10_000


@dataclass(frozen=True)
class NewPhoto:
    """A picture to add as an item: `image`, `regions`, or both.

    Attributes:
        id: Id of the new item.
        image: Bytes of the photo, the path of its file, or the open file.
        text: Caption that is shown with the photo; it takes no part in the search.
        uri: URI shown with the item, or None for its id.
        metadata: JSON values by field name.
        regions: An npz file of the regions that a detector found in the photo, for an index of a
            region model.
    """

    id: Annotated[
        str,
        Field(min_length=1, max_length=MAX_ID_CHARS, description="Your own id; stored unchanged."),
    ]
    image: Annotated[
        UploadedFile | None,
        Field(description="A picture file; in JSON as base64 or a data URL."),
    ] = None
    text: Annotated[
        str | None,
        Field(description="The text itself, or a caption that is shown with the image."),
    ] = None
    uri: Annotated[
        str | None,
        Field(
            max_length=MAX_URI_CHARS,
            description="Shown with an image; null: the id. Not allowed for texts.",
        ),
    ] = None
    metadata: Annotated[
        dict[str, Any],
        # The body of HTTP does not take over the dataclass's own factory.
        Field(default_factory=dict, description="JSON values by field name, for filters."),
    ] = field(default_factory=dict[str, Any])
    regions: Annotated[
        UploadedFile | None,
        Field(
            description=REGIONS_DESCRIPTION
            + " With the photo or alone; an item without a photo is shown without one."
        ),
    ] = None


class Item(BaseModel):
    """An item as the user described it."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)

    id: str
    uri: str | None
    text: str | None
    metadata: dict[str, Any]


class ListedItem(Item):
    """An item of a list."""

    size_px: tuple[int, int] | None = Field(
        description="Width and height of an image, upright; null for a text."
    )
    stack: Stack | None = Field(
        default=None,
        description="The photos that the item stands for, if it stands for several, in their order;"
        " null unless requested by `stack`.",
    )


class ItemPage(BaseModel):
    """A page of items, in the requested order."""

    items: list[ListedItem]
    total: int = Field(description="Items that pass the filter, on all pages.")
    next: str | None = Field(
        description="Id of the last item, with which the next page is requested as `after`; null if"
        " no item follows."
    )
    generation: int = Field(description="Generation of the index.")


class MappedRegion(BaseModel):
    """A region of a photo."""

    box: Box | None = Field(
        description="x0, y0, x1, y1 in fractions of the photo's width and height; null if unknown."
    )


class WordMapsAnswer(BaseModel):
    """A text and a photo, or two photos: each word, or region in the box, with every region."""

    text: str = Field(description="Empty for two photos.")
    match: float = Field(description="Cosine of the two embeddings.")
    align: float = Field(description="Alignment score.")
    regions: list[MappedRegion] = Field(description="Of the photo, or of the box in it.")
    words: list[MappedWord]
    query_regions: list[MappedQueryRegion] | None = Field(
        default=None, description="Regions of the query's photo inside `box`, for two photos."
    )
    found: Box | None = Field(default=None, description="Where the box was found in the photo.")


@dataclass(frozen=True, kw_only=True)
class AddTookMs(TotalMs):
    """Milliseconds by part."""

    write: Annotated[
        float, Field(description="Time until everything was on disk, including waiting for others.")
    ]


class Added(BaseModel):
    """Result of adding the items of a request; they are stored on disk and searchable."""

    added: list[str] = Field(description="Ids that were new.")
    replaced: list[str] = Field(description="Ids whose items were replaced by the new ones.")
    kept: list[str] = Field(description="Ids that existed; their items are kept.")
    generation: int = Field(description="Generation of the index that was added to.")
    took_ms: AddTookMs


class Deleted(BaseModel):
    """Result of deleting an item, from the disk and from searches."""

    deleted: str = Field(description="Its id.")
    generation: int = Field(description="Generation of the index that it was removed from.")
