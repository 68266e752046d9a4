"""The photos of the index's items."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from aladin.errors import InputError
from service.http.errors import error_docs
from service.http.state import Service
from service.work.photo_jobs import ReadPhoto

router = APIRouter(prefix="/v1/images", tags=["items"])

MIN_SIZE_PX = 16


@router.get(
    "/{item_id:path}",
    response_class=Response,
    responses={200: {"content": {"image/*": {}}}, **error_docs(404, 422, 429, 503)},
)
async def get_photo(
    item_id: str,
    service: Service,
    size: Annotated[
        int | None, Query(ge=MIN_SIZE_PX, description="Longest side in px; omitted: the file.")
    ] = None,
) -> Response:
    """Return an item's photo: its file, or with `size` a JPEG without metadata."""
    largest = service.settings.max_photo_size_px
    if size is not None and size > largest:
        raise InputError(f"size: at most {largest} px, got {size}")
    photo = await service.workers.call(ReadPhoto(item_id, size, service.settings.image_limits))
    return Response(photo.data, media_type=photo.media_type)
