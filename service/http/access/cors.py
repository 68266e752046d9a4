"""Cross-origin resource sharing: which pages of other sites may read our answers.

Closed unless origins are listed. Keys travel in headers that a page sets itself, so cookies and
other credentials of the browser are never asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

_REQUEST_HEADERS = "Authorization, Content-Type, X-API-Key, X-Request-ID"
_ANSWER_HEADERS = "Retry-After, X-Request-ID"
# How long a browser may keep our word; revoking an origin takes as long.
_MAX_AGE_S = 600


def is_preflight(scope: Scope, headers: Headers) -> bool:
    """Say whether a browser asks, before it sends a page's request, whether it may."""
    return (
        scope["method"] == "OPTIONS"
        and "origin" in headers
        and "access-control-request-method" in headers
    )


def preflight_response(methods: Iterable[str]) -> Response:
    """Answer an allowed page's preflight; `AnswerHeaders` adds its origin."""
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": ", ".join(methods),
            "Access-Control-Allow-Headers": _REQUEST_HEADERS,
            "Access-Control-Max-Age": str(_MAX_AGE_S),
        },
    )


def cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
    """Return what lets an allowed page read an answer."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _ANSWER_HEADERS.encode()),
    ]
