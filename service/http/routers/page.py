"""The page at /, and the description at /docs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response

router = APIRouter(include_in_schema=False)

# Named one by one: no name of a request ever becomes a path.
PageFile = Literal["page.js", "service.js", "page.css", "docs.js", "icon.svg"]

_MEDIA_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}


@router.get("/")
async def get_page() -> Response:
    """Return the page that searches."""
    return _answer("index.html")


@router.get("/docs")
async def get_docs() -> Response:
    """Return the viewer of the OpenAPI document."""
    return _answer("docs.html")


@router.get("/page/{name}")
async def get_page_file(name: PageFile) -> Response:
    """Return what the two are made of."""
    return _answer(name)


def _answer(name: str) -> Response:
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    # Asked for anew at every visit: after an update, old scripts would meet new pages.
    headers = {"Cache-Control": "no-cache"}
    return Response(_read(name), media_type=media_type, headers=headers)


@cache
def _read(name: str) -> bytes:
    return files("service").joinpath("page", name).read_bytes()
