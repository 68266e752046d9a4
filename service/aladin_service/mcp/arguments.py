"""Arguments of the tools; their JSON schemas are what a model reads before it calls one.

Numbers, lists and objects written as texts are accepted, because models and clients write them, and
so is a single text for a list of one. Unknown arguments are errors: a mistyped filter must not be
ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import from_json

from aladin_index.search.options import OPTION_NAMES, SearchOptions
from aladin_service.search.job import MAX_EXAMPLES, MAX_PARTS

# Larger pages fill the context of a model; further hits are on the next page.
MAX_K = 50
DEFAULT_K = 10
MAX_OFFSET = 10_000
# A thumbnail is some thousand bytes of base64.
MAX_THUMBNAILS = 12
THUMBNAIL_PX = 192
DEFAULT_PHOTO_PX = 512
# Larger pictures are scaled down by the providers of models.
MAX_PHOTO_PX = 1568
MAX_ID_CHARS = 4096

ItemKind = Literal["photos", "texts"]
Words = Annotated[str, Field(min_length=1)]
ItemId = Annotated[str, Field(max_length=MAX_ID_CHARS)]


def _unwrapped(value: object) -> object:
    """Return the list or the object that a text is the JSON of; other values as they are."""
    if isinstance(value, str):
        try:
            found: object = from_json(value)
        except ValueError:
            return value
        if isinstance(found, list | dict):
            return cast(object, found)
    return value


def _listed(value: object) -> object:
    value = _unwrapped(value)
    return [value] if isinstance(value, str) else value


Unwrapped, Listed = BeforeValidator(_unwrapped), BeforeValidator(_listed)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Page(_Arguments):
    """Which hits of a search are returned, and how."""

    k: Annotated[int, Field(ge=1, le=MAX_K, description="Number of hits.")] = DEFAULT_K
    offset: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_OFFSET,
            description="Hits to skip. For the next page, repeat the call with the `next_offset` of"
            " the answer and everything else unchanged.",
        ),
    ] = 0
    filter: Annotated[
        dict[str, Any] | None,
        Field(
            description="Metadata that every hit must have. A field takes a value, a list of values"
            " of which one has to match, or comparisons: eq, ne, gt, gte, lt, lte, in, nin, exists."
            ' Combined by and, or (lists of filters) and not: {"or": [{"city": "Pisa"}, {"year":'
            ' {"gte": 2020}}]}. index_info lists the fields. Use it for what is in the metadata,'
            " and the query for what is visible.",
        ),
        Unwrapped,
    ] = None
    sort: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Metadata field that orders the hits of this page, such as taken_at, or"
            " -taken_at for the largest first. Hits are still found by relevance.",
        ),
    ] = None

    def options(self) -> SearchOptions:
        """Return the options of the search."""
        given = {name: getattr(self, name) for name in OPTION_NAMES if hasattr(self, name)}
        return SearchOptions(**{name: each for name, each in given.items() if each is not None})


class QueryParts(TypedDict):
    """Further parts of a query, by the names of `aladin_service.mcp.access.Query`."""

    also: list[str]
    without: list[str]
    like: list[str]


class _Parts(_Arguments):
    """Further parts of a query, besides its words or its item."""

    and_: Annotated[
        list[Words] | None,
        Field(
            alias="and",
            max_length=MAX_PARTS,
            fail_fast=True,
            description="Further things that the hits have as well, each in words of its own"
            ' (["snow", "a red sledge"]).',
        ),
        Listed,
    ] = None
    not_: Annotated[
        list[Words] | None,
        Field(
            alias="not",
            max_length=MAX_PARTS,
            fail_fast=True,
            description="Things that the hits must not have, each in plain words without a"
            ' negation: for "a dog without a leash" the query is "a dog" and not is ["leash"].'
            " Hits that clearly have one are placed far down.",
        ),
        Listed,
    ] = None
    like: Annotated[
        list[ItemId] | None,
        Field(
            max_length=MAX_EXAMPLES,
            fail_fast=True,
            description="Ids of items that are right, such as hits that the user confirmed: further"
            " hits are like them. They are not among the hits themselves.",
        ),
        Listed,
    ] = None

    def parts(self) -> QueryParts:
        """Return the parts, empty where none is given."""
        return {
            "also": self.and_ or [],
            "without": self.not_ or [],
            "like": self.like or [],
        }


Thumbnails = Annotated[
    bool,
    Field(
        description=f"Whether to return small pictures of the first {MAX_THUMBNAILS} photos, in the"
        " order of the hits. They cost context; ask for them when you need to see the photos."
    ),
]


Lexical = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="Weight of rare words of the query, such as names, that are written in the"
        " caption, the file name or the metadata of an item; `found_in` of a hit says where. 1 for"
        " a query by a name (of a person, a place, a file), otherwise leave it out.",
    ),
]


class SearchPhotosArguments(_Page, _Parts):
    """Words to search for among the photos, and the page of hits."""

    query: Annotated[
        str,
        Field(
            min_length=1,
            description="What the photo shows, as a short caption in plain words: objects, colours,"
            ' actions, places, where things are ("two dogs playing in the snow", "a red car left of'
            ' a tree"). No operators, no dates (those go into `filter`), no negation (`not`).',
        ),
    ]
    min_probability: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="Least probability of a hit, for an index with probabilities (index_info)."
            " Less likely hits are left out of their page.",
        ),
    ] = None
    lexical: Lexical = None
    include_thumbnails: Thumbnails = False


class SearchTextsArguments(_Page, _Parts):
    """Words to search for among the texts, and the page of hits."""

    query: Annotated[
        str, Field(min_length=1, description="What the text says, in plain words of its own.")
    ]
    lexical: Lexical = None


class SimilarArguments(_Page, _Parts):
    """An item of the index, and the page of hits."""

    id: Annotated[
        str, Field(max_length=MAX_ID_CHARS, description="Id of a photo or a text of the index.")
    ]
    box: Annotated[
        list[Annotated[float, Field(ge=0, le=1)]] | None,
        Field(
            min_length=4,
            max_length=4,
            fail_fast=True,
            description="Part of the photo to search for, in place of all of it: x0, y0, x1, y1 in"
            " fractions of its width and height, from its upper left corner. `found` of a hit says"
            " where in that photo it is; explain has the boxes of words.",
        ),
        Unwrapped,
    ] = None
    find: Annotated[
        ItemKind, Field(description="Whether to find photos or texts that fit the item.")
    ] = "photos"
    include_thumbnails: Thumbnails = False


class ExplainArguments(_Arguments):
    """A photo of the index, and the words that it is compared with."""

    photo_id: Annotated[str, Field(max_length=MAX_ID_CHARS, description="Id of a photo.")]
    query: Annotated[
        str | None, Field(min_length=1, description="Words, such as the query of a search.")
    ] = None
    text_id: Annotated[
        str | None,
        Field(max_length=MAX_ID_CHARS, description="Id of a text of the index, instead of words."),
    ] = None
    include_image: Annotated[
        bool, Field(description="Whether to return the photo with the boxes drawn on it.")
    ] = True

    @model_validator(mode="after")
    def _one_text(self) -> ExplainArguments:
        if (self.query is None) == (self.text_id is None):
            got = "none" if self.query is None else "both"
            raise ValueError(f"expected exactly one of query and text_id, got {got}")
        return self


class PhotoArguments(_Arguments):
    """A photo of the index, and its size."""

    id: Annotated[str, Field(max_length=MAX_ID_CHARS, description="Id of a photo.")]
    size_px: Annotated[
        int,
        Field(
            ge=64,
            le=MAX_PHOTO_PX,
            description="Longest side in pixels. The default shows what there is; larger shows"
            " small things and writing, and costs more context.",
        ),
    ] = DEFAULT_PHOTO_PX


class NoArguments(_Arguments):
    """No arguments."""
