"""The photos of the index's items."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from aladin_network.errors import InputError
from aladin_service.http.error_responses import error_docs
from aladin_service.http.etags import NOT_MODIFIED_DOCS, IfNoneMatch, answer_version, known_versions
from aladin_service.http.routes.search import MAX_ASKED_ID_CHARS
from aladin_service.http.state import Service, until_disconnect
from aladin_service.work.jobs import ReadPhoto

router = APIRouter(prefix="/v1/images", tags=["items"])

MIN_SIZE_PX = 16


@router.get(
    "/{item_id:path}",
    summary="Read a photo",
    response_class=Response,
    responses={
        200: {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}},
        **NOT_MODIFIED_DOCS,
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
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return an item's photo, upright and without metadata: its file, or with `size` a JPEG."""
    largest = service.settings.max_photo_size_px
    if size is not None and size > largest:
        raise InputError(f"size: at most {largest} px, got {size}")
    known = known_versions(if_none_match)
    job = ReadPhoto(item_id, size, known)
    read = await until_disconnect(request, service.workers.call(job))
    return answer_version(read.version, read.photo)
