"""The photos of the index's items."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from aladin.errors import InputError
from service.engine import SearchEngine
from service.http.errors import error_docs
from service.http.settings import ServiceSettings
from service.http.state import Engine, Service
from service.photos import PhotoBytes, PhotoGoneError, original_photo, resized_photo

router = APIRouter(prefix="/v1/images", tags=["items"])

MIN_SIZE_PX = 16


@router.get(
    "/{item_id:path}",
    response_class=Response,
    responses={200: {"content": {"image/*": {}}}, **error_docs(404, 422, 429, 503)},
)
async def get_photo(
    item_id: str,
    engine: Engine,
    service: Service,
    size: Annotated[
        int | None, Query(ge=MIN_SIZE_PX, description="Longest side in px; omitted: the file.")
    ] = None,
) -> Response:
    """Return an item's photo: its file, or with `size` a JPEG without metadata."""
    photo = await service.pool.run(_read, engine, item_id, size, service.settings)
    # A browser shows it as what we say it is, whatever is inside.
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(photo.data, media_type=photo.media_type, headers=headers)


def _read(
    engine: SearchEngine, item_id: str, size_px: int | None, settings: ServiceSettings
) -> PhotoBytes:
    if size_px is not None and size_px > settings.max_photo_size_px:
        raise InputError(f"size: at most {settings.max_photo_size_px} px, got {size_px}")
    photo = engine.photo(item_id)
    if photo is None:
        raise PhotoGoneError(item_id)
    if size_px is None:
        return original_photo(photo, item_id)
    return resized_photo(photo, item_id, size_px, settings.image_limits)
