"""The page at /, the index at /state, and the description at /docs."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from aladin_service.http.etags import send_page_file
from aladin_service.http.state import Service

router = APIRouter(include_in_schema=False)

# An explicit list: no name from a request ever becomes a path.
PageFile = Literal[
    "answer.js",
    "charts.css",
    "charts.js",
    "compare.css",
    "compare.js",
    "controls.css",
    "details.js",
    "docs.css",
    "docs.js",
    "docs_schema.js",
    "docs_try.js",
    "elements.js",
    "evidence.css",
    "evidence.js",
    "examples.js",
    "facets.js",
    "filter_language.js",
    "filters.js",
    "formats.js",
    "grid.js",
    "heat.js",
    "icon.svg",
    "index_facts.js",
    "library.js",
    "more.js",
    "options.js",
    "page.css",
    "page.js",
    "panels.css",
    "photos.css",
    "photos.js",
    "preferences.js",
    "problems.js",
    "query_field.js",
    "results.css",
    "search.css",
    "search.js",
    "service.js",
    "state.css",
    "state.js",
    "state_calibration.js",
    "state_contents.js",
    "state_curves.js",
    "state_quality.js",
    "state_slow_queries.js",
    "tables.css",
    "tables.js",
    "viewer.css",
    "viewer.js",
    "viewer_side.js",
    "zoom.js",
]


class PageLimits(BaseModel):
    """The settings that the page needs to know."""

    model_config = ConfigDict(from_attributes=True)

    max_image_bytes: int
    max_text_chars: int
    max_photo_size_px: int


@router.get("/")
async def get_page(request: Request) -> Response:
    """Return the search page."""
    return send_page_file("index.html", request)


@router.get("/state")
async def get_state_page(request: Request) -> Response:
    """Return the page that shows the index."""
    return send_page_file("state.html", request)


@router.get("/docs")
async def get_docs(request: Request) -> Response:
    """Return the page that shows the OpenAPI document."""
    return send_page_file("docs.html", request)


@router.get("/page/limits.json")
async def get_limits(service: Service) -> PageLimits:
    """Return the limits of the service, so that the page can check them before sending."""
    return PageLimits.model_validate(service.settings)


@router.get("/page/{name}")
async def get_page_file(name: PageFile, request: Request) -> Response:
    """Return a file of the pages."""
    return send_page_file(name, request)
