"""Queries of several parts in requests: what hits have, what they do not have, and examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from aladin_index.search.boxes import check_box
from aladin_index.search.results import Box
from aladin_network.errors import InputError
from aladin_network.types import MAX_NAME_CHARS
from aladin_service.http.bodies import StrictBody, Upload
from aladin_service.search.job import (
    MAX_EXAMPLES,
    MAX_PARTS,
    ItemQuery,
    PartsQuery,
    PhotoQuery,
    QueryPart,
    TextQuery,
)

# Longest ID in a request: builds accept IDs of any length, such as paths and URLs.
MAX_ASKED_ID_CHARS = MAX_NAME_CHARS

MAX_WEIGHT = 100

PART_FIELDS = ("all", "not", "like")
ALL_DESCRIPTION = (
    f"What the hits have, all of it: parts of one query, at most {MAX_PARTS} with those of `not`."
)
NOT_DESCRIPTION = (
    "What the hits do not have: a hit is placed lower by how much more it has of it than is usual"
    " among the candidates."
)
LIKE_DESCRIPTION = (
    f"Items of the index that hits are like, at most {MAX_EXAMPLES}; no part of a query is among"
    " its hits. They move the words of texts in `all` towards their regions."
)

ItemId = Annotated[str, StringConstraints(max_length=MAX_ASKED_ID_CHARS)]

BOX_DESCRIPTION = (
    "Part of the photo to search for: x0, y0, x1, y1 in fractions of its width and height."
)


def _with_area(box: list[float]) -> list[float]:
    try:
        check_box(box)
    except InputError as error:
        raise ValueError(str(error).removeprefix("box: ")) from None
    return box


# A list, since JSON has no tuples, and strict validation takes one for the other nowhere.
QueryBox = Annotated[
    list[Annotated[float, Ge(0), Le(1)]],
    Field(min_length=4, max_length=4, fail_fast=True),
    AfterValidator(_with_area),
]


def box_in_url(given: str) -> Box:
    """Read the box of a URL: four numbers with commas between them.

    Raises:
        InputError: If it is no box.
    """
    try:
        return check_box([float(edge) for edge in given.split(",")])
    except ValueError:
        raise InputError(f"box: expected x0,y0,x1,y1, got {given[:100]!r}") from None


def box_of(box: list[float] | None) -> Box | None:
    """Return a box of a request as the queries of jobs have it."""
    return None if box is None else check_box(box)


class PartBody(StrictBody):
    """A part of a query: exactly one of the first three fields, its box and its weight."""

    model_config = ConfigDict(title="QueryPart")

    text: str | None = Field(default=None, description="Words.")
    image: Upload | None = Field(
        default=None, description="A picture file; in JSON as base64 or a data URL."
    )
    id: ItemId | None = Field(default=None, description="An item of the index.")
    box: QueryBox | None = Field(default=None, description=BOX_DESCRIPTION)
    weight: Annotated[float, Gt(0), Le(MAX_WEIGHT)] = Field(
        default=1.0, description="Factor of the part's score in the sum of all parts."
    )

    @model_validator(mode="after")
    def _one_query(self) -> PartBody:
        given = [name for name in ("text", "image", "id") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"expected exactly one of text, image, id, got {got}")
        check_boxed(self.box, given[0])
        return self

    def query(self, source: str) -> TextQuery | PhotoQuery | ItemQuery:
        """Return the part as a query of its own.

        Args:
            source: Name of the part in errors.
        """
        if self.text is not None:
            return TextQuery(self.text)
        box = box_of(self.box)
        if self.image is not None:
            return PhotoQuery(self.image, f"{source}.image", box)
        assert self.id is not None  # by _one_query
        return ItemQuery(self.id, box=box)


def check_boxed(box: list[float] | None, given: str) -> None:
    """Check that a box belongs to a query that can be a photo.

    Args:
        box: Box of a request, or None.
        given: Name of the field with the query.

    Raises:
        ValueError: If the query is a text.
    """
    if box is not None and given == "text":
        raise ValueError("box: expected a photo beside it, by image or id, got text")


def check_parts(
    wanted: Sequence[PartBody],
    unwanted: Sequence[PartBody],
    like: Sequence[str],
    beside: Sequence[str],
) -> None:
    """Check the parts of a query together.

    Args:
        wanted: Parts that hits have.
        unwanted: Parts that hits do not have.
        like: Ids of items that hits are like.
        beside: Names of the other queries that the request contains.

    Raises:
        ValueError: If they are no query.
    """
    if beside:
        raise ValueError(
            f"expected a query or its parts, got {beside[0]} beside all, not or like;"
            f" as a part it belongs into all"
        )
    if not wanted and not like:
        raise ValueError("not: expected a part in all or like beside it, got none")
    if len(wanted) + len(unwanted) > MAX_PARTS:
        got = len(wanted) + len(unwanted)
        raise ValueError(f"all, not: expected at most {MAX_PARTS} parts, got {got}")


def query_of_parts(
    wanted: Sequence[PartBody],
    unwanted: Sequence[PartBody],
    like: Sequence[str],
) -> PartsQuery:
    """Make a query of its parts; see `check_parts`."""
    parts = [
        QueryPart(part.query(f"all[{place}]"), "all", part.weight)
        for place, part in enumerate(wanted)
    ]
    parts += [
        QueryPart(part.query(f"not[{place}]"), "not", part.weight)
        for place, part in enumerate(unwanted)
    ]
    parts += [QueryPart(ItemQuery(item_id), "like") for item_id in dict.fromkeys(like)]
    return PartsQuery(tuple(parts))
