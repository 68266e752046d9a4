"""The evidence for a score: the numbers, and their drawing on the photo and beside the text."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import Field, ValidationError, model_validator

from aladin_network.errors import InputError
from aladin_service.client.answers import MappedRegion, MappedWord, WordMapsAnswer
from aladin_service.http.bodies import StrictBody, Upload, read_body, request_docs, run_sized
from aladin_service.http.error_responses import error_docs, invalid_input
from aladin_service.http.etags import NOT_MODIFIED_DOCS, IfNoneMatch, answer_version, known_versions
from aladin_service.http.routes.search import MAX_ASKED_ID_CHARS, REGIONS_DESCRIPTION
from aladin_service.http.state import Service, ServiceState, until_disconnect
from aladin_service.photos.photo_bytes import PhotoBytes
from aladin_service.queries import ItemQuery, PhotoQuery, RegionsQuery, TextQuery
from aladin_service.work.jobs import DrawEvidence, MapEvidence

router = APIRouter(prefix="/v1", tags=["search"])

_PNG_DOCS = {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}


class ExplainBody(StrictBody):
    """A photo that is not in the index, and a text that is in the index."""

    image: Upload | None = Field(default=None, description="A picture file.")
    regions: Upload | None = Field(
        default=None,
        description=REGIONS_DESCRIPTION + " Drawn on `image`, or on an empty panel.",
    )
    id: str = Field(max_length=MAX_ASKED_ID_CHARS, description="A text of the index.")

    @model_validator(mode="after")
    def _some_photo(self) -> ExplainBody:
        if self.image is None and self.regions is None:
            raise ValueError("expected image, regions or both, got none")
        return self

    def query(self) -> PhotoQuery | RegionsQuery:
        """Return the photo, or its regions."""
        if self.regions is not None:
            return RegionsQuery(self.regions, self.image)
        assert self.image is not None  # by _some_photo
        return PhotoQuery(self.image)


async def read_explain_body(request: Request, service: Service) -> ExplainBody:
    """Read a request with a photo, JSON or multipart.

    Raises:
        ContentTypeError: If the content type is neither of the two.
        InputError: If the body is malformed, or a field is unknown, missing or impossible.
        BodyTooLargeError: If the body exceeds the limit (raised by the middleware while it is
            read).
    """
    body = await read_body(request, service, json_fields=())
    validate, strict = ExplainBody.model_validate, body.kind == "json"
    try:
        return await run_sized(service, body.num_bytes, validate, body.fields, strict=strict)
    except ValidationError as error:
        raise invalid_input(error) from None


_SCHEMA = ExplainBody.model_json_schema()


ExplainedId = Annotated[
    str,
    Query(
        max_length=MAX_ASKED_ID_CHARS,
        description="An item of the index: a photo for a text, a text for a photo.",
    ),
]
ExplainedText = Annotated[str | None, Query(description="Words, against a photo of the index.")]
ExplainedQueryId = Annotated[
    str | None,
    Query(max_length=MAX_ASKED_ID_CHARS, description="Instead of `text`: an item of the index."),
]
Body = Annotated[ExplainBody, Depends(read_explain_body)]


@router.get(
    "/explain",
    operation_id="map_evidence",
    summary="Map the evidence for a hit",
    responses=error_docs(404, 413, 422, 429, 503),
)
async def map_evidence(
    request: Request,
    service: Service,
    id: ExplainedId,
    text: ExplainedText = None,
    query_id: ExplainedQueryId = None,
) -> WordMapsAnswer:
    """Compare each word of a text with every region of a photo.

    The tokens of a word are joined: its numbers are their sums. The words' scores add up to the
    alignment score.
    """
    return await _map(request, service, MapEvidence(_query(text, query_id), id))


@router.post(
    "/explain",
    operation_id="map_evidence_of_photo",
    summary="Map the evidence for an uploaded photo",
    openapi_extra=request_docs(_SCHEMA, form_title="ExplainForm"),
    responses=error_docs(403, 404, 408, 413, 415, 422, 429, 503),
)
async def map_evidence_of_photo(request: Request, body: Body, service: Service) -> WordMapsAnswer:
    """Compare each word of a text of the index with every region of a photo that is not in it."""
    return await _map(request, service, MapEvidence(body.query(), body.id))


@router.get(
    "/explain.png",
    operation_id="draw_evidence",
    summary="Draw the evidence for a hit",
    response_class=Response,
    responses={
        200: _PNG_DOCS,
        **NOT_MODIFIED_DOCS,
        **error_docs(404, 413, 422, 429, 503),
    },
)
async def explain(
    request: Request,
    service: Service,
    id: ExplainedId,
    text: ExplainedText = None,
    query_id: ExplainedQueryId = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Draw which word of a text matches which region of a photo, with the scores.

    The numbers are also in the file itself, as JSON in its text chunk `aladin-evidence`.
    """
    known = known_versions(if_none_match)
    return await _draw(request, service, DrawEvidence(_query(text, query_id), id, known))


@router.post(
    "/explain.png",
    operation_id="draw_evidence_of_photo",
    summary="Draw the evidence for an uploaded photo",
    response_class=Response,
    openapi_extra=request_docs(_SCHEMA, form_title="ExplainForm"),
    responses={200: _PNG_DOCS, **error_docs(403, 404, 408, 413, 415, 422, 429, 503)},
)
async def explain_photo(request: Request, body: Body, service: Service) -> Response:
    """Draw the evidence for a photo that is not in the index and a text that is; see `GET`."""
    return await _draw(request, service, DrawEvidence(body.query(), body.id))


def _query(text: str | None, query_id: str | None) -> TextQuery | ItemQuery:
    if (text is None) == (query_id is None):
        got = "none" if text is None else "both"
        raise InputError(f"expected exactly one of text and query_id, got {got}")
    return ItemQuery(query_id) if query_id is not None else TextQuery(text or "")


async def _map(request: Request, service: ServiceState, job: MapEvidence) -> WordMapsAnswer:
    maps = await until_disconnect(request, service.workers.call(job))
    return WordMapsAnswer(
        text=maps.text,
        match=maps.match,
        align=maps.align,
        regions=[MappedRegion(box=box) for box in maps.boxes],
        words=[
            MappedWord(
                text=maps.text[word.start : word.end],
                start=word.start,
                end=word.end,
                score=word.score,
                share=word.share,
                region=word.region,
                cosines=[round(cosine, 4) for cosine in word.cosines.tolist()],
            )
            for word in maps.words
        ],
    )


async def _draw(request: Request, service: ServiceState, job: DrawEvidence) -> Response:
    drawn = await until_disconnect(request, service.workers.call(job))
    png = None if drawn.png is None else PhotoBytes(drawn.png, "image/png")
    return answer_version(drawn.version, png)
