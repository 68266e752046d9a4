"""Search requests, one by one or many in a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack, cast

import httpx
from pydantic import BaseModel, ValidationError

from aladin_index.search.options import OPTION_NAMES
from aladin_index.search.request import PictureSource, SearchFields, SearchRequest, SearchTerm
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
    again_with,
    base64_chunks,
    given_files,
    json_list_chunks,
)
from aladin_service.client_errors import ServiceError

_DEFAULT = SearchRequest()


def plain_fields(search: SearchRequest) -> dict[str, Any]:
    """Return the query and the options that differ from their defaults, as they are sent.

    The files of a query and the target are not among them.

    Raises:
        OSError: If the picture of a term cannot be read.
    """
    fields: dict[str, Any] = {
        name: value
        for name in ("text", "id", *OPTION_NAMES)
        if (value := getattr(search, name)) is not None and value != getattr(_DEFAULT, name)
    }
    if search.box is not None:
        fields["box"] = list(search.box)
    for term in search.terms():
        sent = term.asked.id if term.role == "like" else _plain_term(term.asked)
        fields.setdefault(term.role, []).append(sent)
    return fields


def _plain_term(term: SearchTerm) -> dict[str, Any]:
    fields: dict[str, Any] = {"text": term.text, "id": term.id}
    if term.image is not None:
        chunks = base64_chunks(cast(PictureSource, term.image))
        fields["image"] = b"".join(chunks).decode()
    if term.box is not None:
        fields["box"] = list(term.box)
    if term.weight != 1:
        fields["weight"] = term.weight
    return {name: value for name, value in fields.items() if value is not None}


def _files(search: SearchRequest) -> dict[str, PictureSource]:
    return given_files(cast(PictureSource | None, search.image), search.regions)


def _target(search: SearchRequest) -> Target:
    return search.target or "images"


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
    return search(SearchRequest(text, "images", **fields))


def search_texts(text: str | None = None, **fields: Unpack[SearchFields]) -> Call[SearchAnswer]:
    """Find the texts that fit a picture, a text or an item; as `search_images`."""
    return search(SearchRequest(text, "texts", **fields))


def search(search: SearchRequest) -> Call[SearchAnswer]:
    """Ask one search that is put together already; otherwise as `search_images`."""
    fields, files = plain_fields(search), _files(search)
    # Files are sent as a form, read during the transfer.
    return Call(
        method="POST",
        path=f"v1/search/{_target(search)}",
        read=read_by(SEARCH_ANSWER.validate_json),
        again=again_with(files.values()),
        body=form_body(fields, files) if files else json_body(fields),
    )


def search_batch(searches: Sequence[SearchRequest]) -> Call[list[Outcome]]:
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

    files = [source for search in searches for source in _files(search).values()]
    return Call(
        method="POST",
        path="v1/search/batch",
        read=read,
        again=again_with(files),
        body=content_body(
            lambda: json_list_chunks(
                "queries",
                (({"target": _target(s), **plain_fields(s)}, _files(s)) for s in searches),
            )
        ),
    )


def search_many(
    queries: Iterable[str | SearchRequest],
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
    batch: list[SearchRequest] = []
    for query in queries:
        batch.append(SearchRequest(query, target, **fields) if isinstance(query, str) else query)
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
