"""Conditional responses: the static files of the page, and pictures identified by ETags.

Files of the page are compressed once, if the browser accepts it. A picture that a client already
has is not sent again.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import Response

from aladin_service.photos.photo_bytes import PhotoBytes

_MEDIA_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}

NOT_MODIFIED_DOCS = {
    304: {"description": "not modified: the client has this version (If-None-Match)"}
}

_ETAG = re.compile(r'"([0-9a-f]{64})"')


@dataclass(frozen=True, kw_only=True)
class PageContent:
    """One file.

    Attributes:
        plain: Uncompressed contents.
        zipped: The same content, compressed.
        tag: ETag of both; weak, for they are the same to a reader and not the same bytes.
    """

    plain: bytes
    zipped: bytes
    tag: str


def send_page_file(name: str, request: Request) -> Response:
    """Answer with a file of the page, or with 304 if the browser has it.

    Args:
        name: Name of a file in ``service/aladin_service/page``.
        request: Request for the file.
    """
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
def _read(name: str) -> PageContent:
    plain = files("aladin_service").joinpath("page", name).read_bytes()
    digest = hashlib.sha256(plain).hexdigest()
    # Without a time stamp: every worker and every start sends the same bytes.
    return PageContent(plain=plain, zipped=gzip.compress(plain, mtime=0), tag=f'W/"{digest}"')


IfNoneMatch = Annotated[
    str | None, Header(description="ETags of the versions that the client has.")
]


def known_versions(if_none_match: str | None) -> frozenset[str]:
    """Return the versions that a client has.

    Args:
        if_none_match: If-None-Match header of the request, or None without one.
    """
    return frozenset(_ETAG.findall(if_none_match or ""))


def answer_version(version: str, picture: PhotoBytes | None) -> Response:
    """Answer with a picture that may be replaced or deleted at any time.

    So whoever has it asks before it is shown again.

    Args:
        version: 64 hexadecimal digits.
        picture: Picture, or None if the client already has it.
    """
    headers = {"ETag": f'"{version}"', "Cache-Control": "private, no-cache"}
    if picture is None:
        return Response(status_code=304, headers=headers)
    return Response(picture.data, media_type=picture.media_type, headers=headers)
