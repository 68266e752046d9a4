"""Searches on their way to the service, one by one and many in a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import httpx
from pydantic import BaseModel, ValidationError

from aladin_index.search.results import SearchAnswer
from aladin_network.types import Target
from aladin_service.client.calls import (
    Call,
    content_body,
    foreign_answer,
    form_body,
    json_body,
    read_as,
)
from aladin_service.client.connection import ErrorDetail, error_of
from aladin_service.client.pictures import PictureSource, can_be_sent_again, json_list_chunks
from aladin_service.client_errors import ServiceError


class SearchFields(TypedDict, total=False):
    """The fields of a search beside its text; what is left out is the service's default.

    Attributes:
        image: a picture: its bytes, the path of its file, or the open file.
        id: an item of the index; it is not among its own hits.
        image_url: where the service fetches a picture, if it is allowed to.
        regions: an npz file of what a detector found in a picture; given as a picture is.
        k: hits wanted.
        offset: hits to skip, for the next page.
        candidates: size of the first stage's result.
        rerank: order the candidates by the second stage.
        fusion: weight of the alignment score in [0, 1].
        explain: say which word matched which region.
        filter: metadata that a hit must have.
        timeout_ms: time that the service may take; re-ranking is left out where it does not fit.
        min_probability: leave out hits that are less likely to belong to the query, in [0, 1].
    """

    image: PictureSource
    id: str
    image_url: str
    regions: PictureSource
    k: int
    offset: int
    candidates: int
    rerank: bool
    fusion: float
    explain: bool
    filter: dict[str, Any]
    timeout_ms: float
    min_probability: float


@dataclass(frozen=True)
class Search:
    """One of many searches: exactly one of `text`, `image`, `id`, `image_url` and `regions`.

    Attributes:
        text: words.
        target: what to find.
        image: see `SearchFields`, as for all that follow; None: the service's default.
        id: of an item.
        image_url: of a picture.
        regions: of a picture.
        k: hits wanted.
        offset: hits to skip.
        candidates: size of the first stage's result.
        rerank: whether the second stage orders.
        fusion: weight of the alignment score.
        explain: whether to say which word matched which region.
        filter: metadata that a hit must have.
        timeout_ms: time that the service may take.
        min_probability: least probability of a hit.
    """

    text: str | None = None
    target: Target = "images"
    image: PictureSource | None = None
    id: str | None = None
    image_url: str | None = None
    regions: PictureSource | None = None
    k: int | None = None
    offset: int | None = None
    candidates: int | None = None
    rerank: bool | None = None
    fusion: float | None = None
    explain: bool | None = None
    filter: dict[str, Any] | None = None
    timeout_ms: float | None = None
    min_probability: float | None = None

    def plain_fields(self) -> dict[str, Any]:
        """Return what is given, without the files and the target."""
        names = (
            *("text", "id", "image_url", "k", "offset", "candidates"),
            *("rerank", "fusion", "explain", "filter", "timeout_ms", "min_probability"),
        )
        given = ((name, getattr(self, name)) for name in names)
        return {name: value for name, value in given if value is not None}

    def files(self) -> dict[str, PictureSource]:
        """Return the files that are given, by field."""
        given = {"image": self.image, "regions": self.regions}
        return {name: source for name, source in given.items() if source is not None}


# What became of one of many searches.
Outcome = SearchAnswer | ServiceError


def search_call(search: Search) -> Call[SearchAnswer]:
    """Ask one search; files go in a form, read while it is sent."""
    fields, files = search.plain_fields(), search.files()
    return Call(
        method="POST",
        path=f"v1/search/{search.target}",
        read=read_as(SearchAnswer),
        again="always" if all(map(can_be_sent_again, files.values())) else "never",
        body=form_body(fields, files) if files else json_body(fields),
    )


def batch_call(searches: Sequence[Search]) -> Call[list[Outcome]]:
    """Ask many searches in one request; the outcomes come in their order."""

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
        again="always" if all(map(can_be_sent_again, files)) else "never",
        body=content_body(
            lambda: json_list_chunks(
                "queries",
                (({"target": s.target, **s.plain_fields()}, s.files()) for s in searches),
            )
        ),
    )


def batch_calls(
    queries: Iterable[str | Search], target: Target, batch_size: int, fields: SearchFields
) -> Iterator[Call[list[Outcome]]]:
    """Ask any number of searches, a batch in a request.

    Args:
        queries: texts, to which `target` and `fields` apply, and searches, which are as they are.
        target: what to find for the texts.
        batch_size: searches in a request.
        fields: options of the texts.
    """
    batch: list[Search] = []
    for query in queries:
        batch.append(Search(query, target, **fields) if isinstance(query, str) else query)
        if len(batch) == batch_size:
            yield batch_call(batch)
            batch = []
    if batch:
        yield batch_call(batch)


class _Failed(BaseModel):
    """What a batch answers of a search that failed."""

    status: int
    error: ErrorDetail

    def as_error(self) -> ServiceError:
        return error_of(self.status, self.error)


class _BatchAnswer(BaseModel):
    answers: list[SearchAnswer | _Failed]
