"""The photos of the index's items."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response

from aladin.errors import InputError
from service.http.errors import error_docs
from service.http.state import Service
from service.work.photo_jobs import ReadPhoto

router = APIRouter(prefix="/v1/images", tags=["items"])

MIN_SIZE_PX = 16

_ETAG = re.compile(r'"([0-9a-f]{64})"')


@router.get(
    "/{item_id:path}",
    response_class=Response,
    responses={
        200: {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}},
        304: {"description": "the client has it already, as If-None-Match says"},
        **error_docs(404, 422, 429, 503),
    },
)
async def get_photo(
    item_id: str,
    service: Service,
    size: Annotated[
        int | None,
        Query(ge=MIN_SIZE_PX, description="Longest side in px; omitted: as large as it is."),
    ] = None,
    if_none_match: Annotated[
        str | None, Header(description="ETags of the photos that the client has.")
    ] = None,
) -> Response:
    """Return an item's photo, upright and without metadata: its file, or with `size` a JPEG."""
    largest = service.settings.max_photo_size_px
    if size is not None and size > largest:
        raise InputError(f"size: at most {largest} px, got {size}")
    known = frozenset(_ETAG.findall(if_none_match or ""))
    read = await service.workers.call(ReadPhoto(item_id, size, known))
    # It may be replaced or deleted any time, so whoever has it asks before it is shown again.
    headers = {"ETag": f'"{read.version}"', "Cache-Control": "private, no-cache"}
    if read.photo is None:
        return Response(status_code=304, headers=headers)
    return Response(read.photo.data, media_type=read.photo.media_type, headers=headers)
