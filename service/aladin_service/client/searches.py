"""Search requests, one by one or many in a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import httpx
from pydantic import BaseModel, ValidationError

from aladin_index.search.options import OPTION_NAMES, SearchOptionFields, SearchOptions
from aladin_index.search.results import SEARCH_ANSWER, SearchAnswer
from aladin_network.types import Target
from aladin_service.client.calls import (
    Call,
    Calls,
    content_body,
    foreign_answer,
    form_body,
    json_body,
    read_by,
)
from aladin_service.client.connection import BATCH_QUERIES, ErrorDetail, error_of
from aladin_service.client.pictures import (
    PictureSource,
    again_with,
    base64_chunks,
    given_files,
    json_list_chunks,
)
from aladin_service.client_errors import ServiceError


@dataclass(frozen=True, kw_only=True)
class SearchPart:
    """A part of a query of several: exactly one of `text`, `image` and `id`.

    Attributes:
        text: Words.
        image: A picture: its bytes, the path of its file, or the open file, which is read when the
            search is sent.
        id: Id of an item of the index.
        box: Part of the photo to search for, see `SearchFields`.
        weight: Factor of the part's score in the sum of all parts.
    """

    text: str | None = None
    image: PictureSource | None = None
    id: str | None = None
    box: Sequence[float] | None = None
    weight: float = 1.0

    def plain_fields(self) -> dict[str, Any]:
        """Return the part as it is sent.

        Raises:
            OSError: If the picture's file cannot be read.
        """
        fields: dict[str, Any] = {"text": self.text, "id": self.id}
        if self.image is not None:
            fields["image"] = b"".join(base64_chunks(self.image)).decode()
        if self.box is not None:
            fields["box"] = list(self.box)
        if self.weight != 1:
            fields["weight"] = self.weight
        return {name: value for name, value in fields.items() if value is not None}


class SearchFields(SearchOptionFields, total=False):
    """The fields of a search beside its text: one query at most, and the options.

    Attributes:
        image: A picture: its bytes, the path of its file, or the open file.
        id: Id of an item of the index; it is not among its own hits.
        regions: An npz file of the regions that a detector found in a picture, given as a picture.
        box: Part of the picture, or of the item's photo, to search for: x0, y0, x1, y1 in fractions
            of its width and height.
        all: Parts that hits have; texts, or parts of any kind.
        not_: Parts that hits do not have, likewise.
        like: Ids of items that hits are like.
    """

    image: PictureSource
    id: str
    regions: PictureSource
    box: Sequence[float]
    all: Sequence[str | SearchPart]
    not_: Sequence[str | SearchPart]
    like: Sequence[str]


@dataclass(frozen=True)
class Search(SearchOptions):
    """One of many searches.

    It has exactly one of `text`, `image`, `id` and `regions`, or parts: `all`, `like` or both, and
    perhaps `not_`.

    Attributes:
        text: Words to search for.
        target: Collection to search.
        image: See `SearchFields`, as for the following fields.
        id: Id of an item.
        regions: Regions of a picture.
        box: Part of the picture or photo to search for.
        all: Parts that hits have.
        not_: Parts that hits do not have.
        like: Ids of items that hits are like.
    """

    text: str | None = None
    target: Target = "images"
    image: PictureSource | None = None
    id: str | None = None
    regions: PictureSource | None = None
    box: Sequence[float] | None = None
    all: Sequence[str | SearchPart] = ()
    not_: Sequence[str | SearchPart] = ()
    like: Sequence[str] = ()

    def plain_fields(self) -> dict[str, Any]:
        """Return the query and the options that differ from their defaults.

        The files of a query and the target are not among them.

        Raises:
            OSError: If the picture of a part cannot be read.
        """
        fields: dict[str, Any] = {
            name: value
            for name in ("text", "id", *OPTION_NAMES)
            if (value := getattr(self, name)) is not None and value != getattr(_DEFAULT, name)
        }
        if self.box is not None:
            fields["box"] = list(self.box)
        for name, parts in (("all", self.all), ("not", self.not_)):
            if parts:
                whole = (SearchPart(text=each) if isinstance(each, str) else each for each in parts)
                fields[name] = [part.plain_fields() for part in whole]
        return fields | ({"like": list(self.like)} if self.like else {})

    def files(self) -> dict[str, PictureSource]:
        """Return the given files, by field."""
        return given_files(self.image, self.regions)


_DEFAULT = Search()

# The result of one of many searches.
Outcome = SearchAnswer | ServiceError


def search_images(text: str | None = None, **fields: Unpack[SearchFields]) -> Call[SearchAnswer]:
    """Find the images that fit a text, a picture or an item.

    Args:
        text: Words, or None if `image`, `id` or `regions` is given.
        fields: Search options, see `SearchFields`.

    Raises:
        ServiceError: If the service rejects the request.
        ServiceUnreachableError: If the service does not answer.
        OSError: If a picture's file cannot be read.
    """
    return search(Search(text, "images", **fields))


def search_texts(text: str | None = None, **fields: Unpack[SearchFields]) -> Call[SearchAnswer]:
    """Find the texts that fit a picture, a text or an item; as `search_images`."""
    return search(Search(text, "texts", **fields))


def search(search: Search) -> Call[SearchAnswer]:
    """Ask one search that is put together already; otherwise as `search_images`."""
    fields, files = search.plain_fields(), search.files()
    # Files are sent as a form, read during the transfer.
    return Call(
        method="POST",
        path=f"v1/search/{search.target}",
        read=read_by(SEARCH_ANSWER.validate_json),
        again=again_with(files.values()),
        body=form_body(fields, files) if files else json_body(fields),
    )


def search_batch(searches: Sequence[Search]) -> Call[list[Outcome]]:
    """Ask several searches in one request.

    Args:
        searches: One search or more, at most 256.

    Returns:
        In the same order, an answer or the error of each.

    Raises:
        ServiceError: If the service rejects the whole batch.
        ServiceUnreachableError, OSError: See `search_images`.
    """

    def read(response: httpx.Response) -> list[Outcome]:
        try:
            answers = _BatchAnswer.model_validate_json(response.content).answers
        except ValidationError as error:
            raise foreign_answer(response, str(error)) from None
        if len(answers) != len(searches):
            raise foreign_answer(response, f"expected {len(searches)} answers, got {len(answers)}")
        return [each if isinstance(each, SearchAnswer) else each.as_error() for each in answers]

    files = [source for search in searches for source in search.files().values()]
    return Call(
        method="POST",
        path="v1/search/batch",
        read=read,
        again=again_with(files),
        body=content_body(
            lambda: json_list_chunks(
                "queries",
                (({"target": s.target, **s.plain_fields()}, s.files()) for s in searches),
            )
        ),
    )


def search_many(
    queries: Iterable[str | Search],
    target: Target = "images",
    *,
    batch_size: int = BATCH_QUERIES,
    **fields: Unpack[SearchFields],
) -> Calls[list[Outcome]]:
    """Ask any number of searches, a batch in a request.

    Args:
        queries: Texts, to which `target` and `fields` apply, and searches, which are complete.
        target: Collection to search for the texts.
        batch_size: Number of searches per request.
        fields: Search options for the texts, see `SearchFields`.

    Yields:
        In the same order, an answer or the error of each, as the batches come back.

    Raises:
        ServiceError: If the service rejects a whole batch.
        ServiceUnreachableError, OSError: See `search_images`.
    """
    batch: list[Search] = []
    for query in queries:
        batch.append(Search(query, target, **fields) if isinstance(query, str) else query)
        if len(batch) == batch_size:
            yield search_batch(batch)
            batch = []
    if batch:
        yield search_batch(batch)


class _Failed(BaseModel):
    """The entry of a batch answer for a failed search."""

    status: int
    error: ErrorDetail

    def as_error(self) -> ServiceError:
        return error_of(self.status, self.error)


class _BatchAnswer(BaseModel):
    answers: list[SearchAnswer | _Failed]
