"""Pictures that a client may have already: named by an ETag, and not sent again."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header
from fastapi.responses import Response

from service.photos.photo_bytes import PhotoBytes

IfNoneMatch = Annotated[str | None, Header(description="ETags of what the client has.")]

NOT_MODIFIED_DOCS = {304: {"description": "the client has it already, as If-None-Match says"}}

_ETAG = re.compile(r'"([0-9a-f]{64})"')


def known_versions(if_none_match: str | None) -> frozenset[str]:
    """Return the versions that a client has.

    Args:
        if_none_match: the request's header; None: it has none.
    """
    return frozenset(_ETAG.findall(if_none_match or ""))


def answer_version(version: str, picture: PhotoBytes | None) -> Response:
    """Answer with a picture that may be replaced or deleted any time.

    So whoever has it asks before it is shown again.

    Args:
        version: 64 hexadecimal digits.
        picture: None: the client has it.
    """
    headers = {"ETag": f'"{version}"', "Cache-Control": "private, no-cache"}
    if picture is None:
        return Response(status_code=304, headers=headers)
    return Response(picture.data, media_type=picture.media_type, headers=headers)
