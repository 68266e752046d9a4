"""Searches: images for words or a photo, texts for a photo or words."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from aladin_index.search.results import SearchAnswer
from aladin_network.types import Target
from aladin_service.http.error_responses import error_docs
from aladin_service.http.search_requests import (
    SEARCH_REQUEST_DOCS,
    SearchBody,
    SearchRequest,
    run_search,
)
from aladin_service.http.state import Service, ServiceState, until_disconnect
from aladin_service.search.job import Answered

router = APIRouter(
    prefix="/v1/search",
    tags=["search"],
    responses=error_docs(403, 404, 408, 413, 415, 422, 429, 503),
)


@router.post(
    "/images",
    summary="Search images",
    response_model=SearchAnswer,
    openapi_extra=SEARCH_REQUEST_DOCS,
)
async def search_images(request: Request, body: SearchRequest, service: Service) -> Response:
    """Find the images that fit a text, a photo or an item of the index."""
    return await _search(request, body, "images", service)


@router.post(
    "/texts",
    summary="Search texts",
    response_model=SearchAnswer,
    openapi_extra=SEARCH_REQUEST_DOCS,
)
async def search_texts(request: Request, body: SearchRequest, service: Service) -> Response:
    """Find the texts that fit a photo, a text or an item of the index."""
    return await _search(request, body, "texts", service)


async def _search(
    request: Request, body: SearchBody, target: Target, service: ServiceState
) -> Response:
    answered = await until_disconnect(request, _find(body, target, service))
    return Response(answered.body, media_type="application/json")


async def _find(body: SearchBody, target: Target, service: ServiceState) -> Answered:
    query = await body.query(service.fetcher)  # which may have to be fetched
    return await run_search(service, query, target, body.options())
