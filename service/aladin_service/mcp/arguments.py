"""Arguments of the tools of agents."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from aladin_index.search.options import OPTION_NAMES, SearchOptions
from aladin_index.search.request import MAX_EXAMPLES, MAX_TERMS, SearchRequest, one_of
from aladin_network.errors import InputError
from aladin_service.failures import describe_invalid

# Larger pages fill the context of a model; further hits are on the next page.
_MAX_K = 50
MAX_OFFSET = 10_000
# A thumbnail takes some thousand bytes of base64.
MAX_THUMBNAILS = 12
# Larger pictures are scaled down by the providers of models.
_MAX_PHOTO_PX = 1568
_MAX_CHARS = 4096

_Words = Annotated[str, Field(min_length=1, max_length=_MAX_CHARS)]
_ItemId = Annotated[str, Field(min_length=1, max_length=_MAX_CHARS)]
# Models write one text for a list of one.
_Listed = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)


def _options_last(schema: dict[str, Any]) -> None:
    """Name what is searched for before the options, which are inherited."""
    fields = schema["properties"].items()
    schema["properties"] = dict(sorted(fields, key=lambda each: each[0] in OPTION_NAMES))


class Arguments(ArgModelBase):
    """Arguments of a tool: a model reads their JSON schema before it calls one.

    Unknown arguments are errors: a mistyped filter must not be ignored.
    """

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, json_schema_extra=_options_last
    )

    def model_dump_one_level(self) -> dict[str, Any]:
        """Return the arguments as the SDK passes them to a tool: as one."""
        return {"arguments": self}

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_briefly(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Make one short error of all, which the SDK returns and logs one by one."""
        try:
            return validate(given)
        except ValidationError as error:
            faults = {"faults": describe_invalid(error)}
            raise PydanticCustomError("invalid", "{faults}", faults) from None


class SearchArguments(Arguments, SearchOptions):  # pyright: ignore[reportGeneralTypeIssues]
    """What is searched for, and the page of hits."""

    # What a model cannot choose better than the index, or would not read.
    candidates: ClassVar[Any] = None
    rerank: ClassVar[Any] = True
    fusion: ClassVar[Any] = None
    explain: ClassVar[Any] = False
    timeout_ms: ClassVar[Any] = None
    facets: ClassVar[Any] = []

    query: Annotated[
        str,
        Field(
            max_length=_MAX_CHARS,
            description="What the photo shows, as a short caption in plain words: objects, colours,"
            ' actions, places, where things are ("two dogs playing in the snow", "a red car left of'
            ' a tree"). No operators, no dates (those go into `filter`), no negation (`not`).',
        ),
    ] = ""
    id: Annotated[
        str,
        Field(
            max_length=_MAX_CHARS,
            description="In place of `query`: id of a photo or a text, to find what fits it.",
        ),
    ] = ""
    find: Annotated[
        Literal["photos", "texts"], Field(description="Whether photos or texts are found.")
    ] = "photos"
    and_: Annotated[
        list[_Words],
        Field(
            default_factory=list,
            alias="and",
            max_length=MAX_TERMS,
            fail_fast=True,
            description="Further things that the hits have as well, each in words of its own"
            ' (["snow", "a red sledge"]).',
        ),
        _Listed,
    ]
    not_: Annotated[
        list[_Words],
        Field(
            default_factory=list,
            alias="not",
            max_length=MAX_TERMS,
            fail_fast=True,
            description="Things that the hits must not have, each in plain words without a"
            ' negation: for "a dog without a leash" the query is "a dog" and not is ["leash"].',
        ),
        _Listed,
    ]
    like: Annotated[
        list[_ItemId],
        Field(
            default_factory=list,
            max_length=MAX_EXAMPLES,
            fail_fast=True,
            description="Ids of items that are right, such as hits that the user confirmed: further"
            " hits are like them. They are not among the hits themselves.",
        ),
        _Listed,
    ]
    box: Annotated[
        list[Annotated[float, Field(ge=0, le=1)]] | None,
        Field(
            min_length=4,
            max_length=4,
            fail_fast=True,
            description="Part of the photo of `id` to search for, in place of all of it: x0, y0,"
            " x1, y1 in fractions of its width and height. `found` of a hit is where it is there.",
        ),
    ] = None
    k: Annotated[int, Field(ge=1, le=_MAX_K, description="Number of hits.")] = 10
    offset: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_OFFSET,
            description="Hits to skip. For the next page, repeat the call with the `next_offset` of"
            " the answer and everything else unchanged.",
        ),
    ] = 0
    thumbnails: Annotated[
        bool,
        Field(
            description=f"Whether to return small pictures of the first {MAX_THUMBNAILS} photos,"
            " in the order of the hits. They cost context."
        ),
    ] = False

    @model_validator(mode="after")
    def _one_query(self) -> Self:
        try:
            one_of({"query": self.query or None, "id": self.id or None})
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    def search(self) -> SearchRequest:
        """Return the search that a client sends."""
        options: Any = {name: getattr(self, name) for name in OPTION_NAMES}
        request = SearchRequest(
            self.query or None,
            "images" if self.find == "photos" else "texts",
            id=self.id or None,
            box=self.box,
            all=self.and_,
            not_=self.not_,
            like=self.like,
            **options,
        )
        return request.with_query_as_term()


class ShowArguments(Arguments):
    """A photo of the index, and words to point at in it."""

    id: Annotated[_ItemId, Field(description="Id of a photo.")]
    query: Annotated[
        str,
        Field(
            max_length=_MAX_CHARS,
            description="Words, such as the query of a search: the photo is drawn with a box where"
            " each of them fits best. The boxes are hints, and no proof that something is there.",
        ),
    ] = ""
    size_px: Annotated[
        int,
        Field(
            ge=64,
            le=_MAX_PHOTO_PX,
            description="Longest side in pixels. The default shows what there is; larger shows"
            " small things and writing, and costs more context.",
        ),
    ] = 512


class DescribeArguments(Arguments):
    """No arguments."""
