"""The page at /, and the description at /docs.

The files of the pages are compressed once, and sent again only if they have changed.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service

router = ServiceRouter(include_in_schema=False)

_FOLDER = files("aladin_service").joinpath("page")
_MEDIA_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}


class PageLimits(BaseModel):
    """The settings that the page needs to know."""

    model_config = ConfigDict(from_attributes=True)

    max_image_bytes: int
    max_text_chars: int
    max_photo_size_px: int


@router.get("/")
async def get_page(request: Request) -> Response:
    """Return the search page."""
    return _send("index.html", request)


@router.get("/docs")
async def get_docs(request: Request) -> Response:
    """Return the page that shows the OpenAPI document."""
    return _send("docs.html", request)


@router.get("/page/limits.json")
async def get_limits(service: Service) -> PageLimits:
    """Return the limits of the service, so that the page can check them before sending."""
    return PageLimits.model_validate(service.settings)


@router.get("/page/{name}")
async def get_page_file(name: str, request: Request) -> Response:
    """Return a file of the pages; those in HTML have addresses of their own."""
    if name not in _names() or name.endswith(".html"):
        raise HTTPException(404, "Not Found")
    return _send(name, request)


@dataclass(frozen=True, kw_only=True)
class _PageContent:
    """One file.

    Attributes:
        plain: Uncompressed contents.
        zipped: The same content, compressed.
        tag: ETag of both; weak, for they are the same to a reader and not the same bytes.
    """

    plain: bytes
    zipped: bytes
    tag: str


def _send(name: str, request: Request) -> Response:
    """Answer with a file of the page, or with 304 if the browser has it."""
    content = _read(name)
    # Revalidated at every visit: after an update, old scripts would run in new pages.
    headers = {"Cache-Control": "no-cache", "ETag": content.tag, "Vary": "Accept-Encoding"}
    if content.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = content.plain
    if "gzip" in request.headers.get("accept-encoding", ""):
        body = content.zipped
        headers["Content-Encoding"] = "gzip"
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    return Response(body, media_type=media_type, headers=headers)


@cache
def _names() -> frozenset[str]:
    """Return the names of all files: no name from a request ever becomes a path."""
    return frozenset(file.name for file in _FOLDER.iterdir() if file.name != "__init__.py")


@cache
def _read(name: str) -> _PageContent:
    plain = _FOLDER.joinpath(name).read_bytes()
    digest = hashlib.sha256(plain).hexdigest()
    # Without a time stamp: every worker and every start sends the same bytes.
    return _PageContent(plain=plain, zipped=gzip.compress(plain, mtime=0), tag=f'W/"{digest}"')
