"""Photos of the index, and the evidence for a score, drawn and in numbers.

Each picture has an ETag, so that one that a client already has is not sent again.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, cast

from fastapi import Depends, Header, Path, Query, Request
from fastapi.responses import Response
from pydantic import Field, ValidationError, model_validator

from aladin_index.search.request import (
    MAX_ASKED_ID_CHARS,
    REGIONS_DESCRIPTION,
    Asked,
    Upload,
    check_box,
    check_boxed,
    one_of,
    parse_box,
)
from aladin_index.search.results import Box
from aladin_network.errors import InputError
from aladin_service.http.bodies import StrictBody, read_body, request_docs, run_sized
from aladin_service.http.error_responses import error_docs, invalid_input
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect
from aladin_service.photos.photo_bytes import PhotoBytes
from aladin_service.search.answers import WordMapsAnswer
from aladin_service.search.job import ItemQuery, PhotoQuery, RegionsQuery, TextQuery
from aladin_service.work.jobs import DrawEvidence, MapEvidence, ReadPhoto

router = ServiceRouter(prefix="/v1")

MIN_SIZE_PX = 16

_PNG_DOCS = {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}
_NOT_MODIFIED_DOCS = {
    304: {"description": "not modified: the client has this version (If-None-Match)"}
}
_IfNoneMatch = Annotated[
    str | None, Header(description="ETags of the versions that the client has.")
]
_ETAG = re.compile(r'"([0-9a-f]{64})"')


@router.get(
    "/images/{item_id:path}",
    tags=["items"],
    summary="Read a photo",
    response_class=Response,
    responses={
        200: {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}},
        **_NOT_MODIFIED_DOCS,
        **error_docs(404, 413, 422, 429, 503),
    },
)
async def get_photo(
    item_id: Annotated[str, Path(max_length=MAX_ASKED_ID_CHARS)],
    request: Request,
    service: Service,
    size: Annotated[
        int | None,
        Query(ge=MIN_SIZE_PX, description="Longest side in px; omitted: original size."),
    ] = None,
    if_none_match: _IfNoneMatch = None,
) -> Response:
    """Return an item's photo, upright and without metadata: its file, or with `size` a JPEG."""
    check_size(service, size)
    known = _known_versions(if_none_match)
    job = ReadPhoto(item_id, size, known)
    read = await until_disconnect(request, service.workers.call(job))
    return _answer_version(read.version, read.photo)


def check_size(service: ServiceState, size: int | None) -> None:
    largest = service.settings.max_photo_size_px
    if size is not None and size > largest:
        raise InputError(f"size: at most {largest} px, got {size}")


class ExplainBody(StrictBody, Asked):  # pyright: ignore[reportGeneralTypeIssues]
    """A photo that is not in the index, and a text, or a photo, that is in the index."""

    text: ClassVar[str | None] = None  # pyright: ignore[reportIncompatibleVariableOverride]
    regions: Upload | None = Field(
        default=None,
        description=REGIONS_DESCRIPTION + " Drawn on `image`, or on an empty panel.",
    )
    id: str = Field(  # pyright: ignore[reportIncompatibleVariableOverride]
        max_length=MAX_ASKED_ID_CHARS,
        description="A text of the index; with `box`, a photo or a text.",
    )

    @model_validator(mode="after")
    def _some_photo(self) -> ExplainBody:
        if self.image is None and self.regions is None:
            raise ValueError("expected image, regions or both, got none")
        return self

    def query(self) -> PhotoQuery | RegionsQuery:
        box = None if self.box is None else check_box(self.box)
        image = None if self.image is None else cast(bytes, self.image)
        if self.regions is not None:
            return RegionsQuery(self.regions, image, box=box)
        assert image is not None  # by _some_photo
        return PhotoQuery(image, box=box)


async def read_explain_body(request: Request, service: Service) -> ExplainBody:
    body = await read_body(request, service, json_fields=("box",))
    validate, strict = ExplainBody.model_validate, body.kind == "json"
    try:
        return await run_sized(service, body.num_bytes, validate, body.fields, strict=strict)
    except ValidationError as error:
        raise invalid_input(error) from None


_ExplainedBody = Annotated[ExplainBody, Depends(read_explain_body)]
_EXPLAIN_DOCS = request_docs(ExplainBody.model_json_schema(), form_title="ExplainForm")

_ExplainedId = Annotated[
    str,
    Query(
        max_length=MAX_ASKED_ID_CHARS,
        description="An item of the index: a photo for a text, a text for a photo, either for a"
        " part of a photo.",
    ),
]
_ExplainedText = Annotated[str | None, Query(description="Words, against a photo of the index.")]
_ExplainedQueryId = Annotated[
    str | None,
    Query(max_length=MAX_ASKED_ID_CHARS, description="Instead of `text`: an item of the index."),
]


async def read_box(
    box: Annotated[
        str | None,
        Query(
            description="Part of the photo of `query_id`: x0,y0,x1,y1 in fractions of its size.",
            examples=["0.1,0.2,0.5,0.6"],
        ),
    ] = None,
) -> Box | None:
    """Read the box of a pair: four numbers with commas between them."""
    return None if box is None else parse_box(box)


_ExplainedBox = Annotated[Box | None, Depends(read_box)]


def _pair_query(
    text: str | None, query_id: str | None, box: Box | None = None
) -> TextQuery | ItemQuery:
    """Return the query of a pair: a text, or an item of the index or a part of its photo."""
    name = one_of({"text": text, "query_id": query_id})
    if box is not None:
        check_boxed(box, name)
    return TextQuery(text or "") if query_id is None else ItemQuery(query_id, box=box)


@router.get(
    "/explain.png",
    tags=["search"],
    operation_id="draw_evidence",
    summary="Draw the evidence for a hit",
    response_class=Response,
    responses={
        200: _PNG_DOCS,
        **_NOT_MODIFIED_DOCS,
        **error_docs(404, 413, 422, 429, 503),
    },
)
async def explain(
    request: Request,
    service: Service,
    id: _ExplainedId,
    box: _ExplainedBox,
    text: _ExplainedText = None,
    query_id: _ExplainedQueryId = None,
    if_none_match: _IfNoneMatch = None,
) -> Response:
    """Draw which word of a text matches which region of a photo, with the scores.

    With a box of a photo and another photo: which regions of the two fit each other, and where the
    box was found.

    The numbers are also in the file itself, as JSON in its text chunk `aladin-evidence`.
    """
    known = _known_versions(if_none_match)
    return await _draw(request, service, DrawEvidence(_pair_query(text, query_id, box), id, known))


@router.post(
    "/explain.png",
    tags=["search"],
    operation_id="draw_evidence_of_photo",
    summary="Draw the evidence for an uploaded photo",
    response_class=Response,
    openapi_extra=_EXPLAIN_DOCS,
    responses={200: _PNG_DOCS, **error_docs(403, 404, 408, 413, 415, 422, 429, 503)},
)
async def explain_photo(request: Request, body: _ExplainedBody, service: Service) -> Response:
    """Draw the evidence for a photo that is not in the index and a text that is; see `GET`."""
    return await _draw(request, service, DrawEvidence(body.query(), body.id))


@router.get(
    "/explain",
    tags=["search"],
    summary="Map the evidence for a hit",
    responses=error_docs(404, 413, 422, 429, 503),
)
async def map_evidence(
    request: Request,
    service: Service,
    id: _ExplainedId,
    box: _ExplainedBox,
    text: _ExplainedText = None,
    query_id: _ExplainedQueryId = None,
) -> WordMapsAnswer:
    """Compare each word of a text with every region of a photo, or each region in a box.

    The tokens of a word are joined: its numbers are their sums. The words' scores add up to the
    alignment score. With a box of a photo and another photo, the regions inside the box are
    compared in place of words.
    """
    job = MapEvidence(_pair_query(text, query_id, box), id)
    return await until_disconnect(request, service.workers.call(job))


@router.post(
    "/explain",
    tags=["search"],
    summary="Map the evidence for an uploaded photo",
    openapi_extra=_EXPLAIN_DOCS,
    responses=error_docs(403, 404, 408, 413, 415, 422, 429, 503),
)
async def map_evidence_of_photo(
    request: Request, body: _ExplainedBody, service: Service
) -> WordMapsAnswer:
    """Compare a text of the index with a photo that is not in it, or a photo with a part of it."""
    job = MapEvidence(body.query(), body.id)
    return await until_disconnect(request, service.workers.call(job))


async def _draw(request: Request, service: ServiceState, job: DrawEvidence) -> Response:
    drawn = await until_disconnect(request, service.workers.call(job))
    png = None if drawn.png is None else PhotoBytes(drawn.png, "image/png")
    return _answer_version(drawn.version, png)


def _known_versions(if_none_match: str | None) -> frozenset[str]:
    return frozenset(_ETAG.findall(if_none_match or ""))


def _answer_version(version: str, picture: PhotoBytes | None) -> Response:
    """Answer with a picture that may be replaced or deleted at any time.

    Clients must revalidate it each time (ETag).
    """
    headers = {"ETag": f'"{version}"', "Cache-Control": "private, no-cache"}
    if picture is None:
        return Response(status_code=304, headers=headers)
    return Response(picture.data, media_type=picture.media_type, headers=headers)
