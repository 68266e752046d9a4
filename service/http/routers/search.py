"""Searches: images for words or a photo, texts for a photo or words."""

from __future__ import annotations

from fastapi import APIRouter

from service.answer import SearchAnswer
from service.http.errors import error_docs
from service.http.requests import SEARCH_REQUEST_DOCS, SearchRequest
from service.http.state import Engine, Service

router = APIRouter(
    prefix="/v1/search", tags=["search"], responses=error_docs(404, 413, 415, 422, 429, 503)
)


@router.post("/images", openapi_extra=SEARCH_REQUEST_DOCS)
async def search_images(body: SearchRequest, engine: Engine, service: Service) -> SearchAnswer:
    """Find the images that fit a text, a photo or an item of the index."""
    return await service.pool.run(engine.search, body.query(), "images", body.options())


@router.post("/texts", openapi_extra=SEARCH_REQUEST_DOCS)
async def search_texts(body: SearchRequest, engine: Engine, service: Service) -> SearchAnswer:
    """Find the texts that fit a photo, a text or an item of the index."""
    return await service.pool.run(engine.search, body.query(), "texts", body.options())
