"""Queries of several parts in requests: what hits have, what they do not have, and examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from annotated_types import Gt, Le
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from aladin_service.http.bodies import StrictBody, Upload
from aladin_service.search.job import ItemQuery, PartsQuery, PhotoQuery, QueryPart, TextQuery

# Longest ID in a request: builds accept IDs of any length, such as paths and URLs.
MAX_ASKED_ID_CHARS = 4096

# Parts of a query that are compared with every candidate, in both stages.
MAX_PARTS = 8
# Examples, of which only the embeddings are compared.
MAX_EXAMPLES = 64
MAX_WEIGHT = 100

PART_FIELDS = ("all", "not", "like", "unlike")
ALL_DESCRIPTION = (
    f"What the hits have, all of it: parts of one query, at most {MAX_PARTS} with those of `not`."
)
NOT_DESCRIPTION = (
    "What the hits do not have: a hit is placed lower by how much more it has of it than is usual"
    " among the candidates."
)
LIKE_DESCRIPTION = (
    f"Items of the index that hits are like, at most {MAX_EXAMPLES} with those of `unlike`; no part"
    " of a query is among its hits. They move the words of texts in `all` towards their regions."
)
UNLIKE_DESCRIPTION = "Items of the index that hits are unlike."

ItemId = Annotated[str, StringConstraints(max_length=MAX_ASKED_ID_CHARS)]


class PartBody(StrictBody):
    """A part of a query: exactly one of the first three fields, and its weight."""

    model_config = ConfigDict(title="QueryPart")

    text: str | None = Field(default=None, description="Words.")
    image: Upload | None = Field(default=None, description="A picture file.")
    id: ItemId | None = Field(default=None, description="An item of the index.")
    weight: Annotated[float, Gt(0), Le(MAX_WEIGHT)] = Field(
        default=1.0, description="Factor of the part's score in the sum of all parts."
    )

    @model_validator(mode="after")
    def _one_query(self) -> PartBody:
        given = [name for name in ("text", "image", "id") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"expected exactly one of text, image, id, got {got}")
        return self

    def query(self, source: str) -> TextQuery | PhotoQuery | ItemQuery:
        """Return the part as a query of its own.

        Args:
            source: Name of the part in errors.
        """
        if self.text is not None:
            return TextQuery(self.text)
        if self.image is not None:
            return PhotoQuery(self.image, source=f"{source}.image")
        assert self.id is not None  # by _one_query
        return ItemQuery(self.id)


def check_parts(
    wanted: Sequence[PartBody],
    unwanted: Sequence[PartBody],
    like: Sequence[str],
    unlike: Sequence[str],
    beside: Sequence[str],
) -> None:
    """Check the parts of a query together.

    Args:
        wanted: Parts that hits have.
        unwanted: Parts that hits do not have.
        like: Ids of items that hits are like.
        unlike: Ids of items that hits are unlike.
        beside: Names of the other queries that the request contains.

    Raises:
        ValueError: If they are no query.
    """
    if beside:
        raise ValueError(
            f"expected a query or its parts, got {beside[0]} beside all, not, like or unlike;"
            f" as a part it belongs into all"
        )
    if not wanted and not like:
        raise ValueError("not, unlike: expected a part in all or like beside them, got none")
    if len(wanted) + len(unwanted) > MAX_PARTS:
        got = len(wanted) + len(unwanted)
        raise ValueError(f"all, not: expected at most {MAX_PARTS} parts, got {got}")
    if len(like) + len(unlike) > MAX_EXAMPLES:
        got = len(like) + len(unlike)
        raise ValueError(f"like, unlike: expected at most {MAX_EXAMPLES} ids, got {got}")
    both = set(like) & set(unlike)
    if both:
        raise ValueError(f"like, unlike: {min(both)!r} is in both")


def query_of_parts(
    wanted: Sequence[PartBody],
    unwanted: Sequence[PartBody],
    like: Sequence[str],
    unlike: Sequence[str],
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
    parts += [QueryPart(ItemQuery(item_id), "unlike") for item_id in dict.fromkeys(unlike)]
    return PartsQuery(tuple(parts))
