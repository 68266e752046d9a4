"""Headers of every answer, those of errors included: what a browser may do with it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.access.cors import cors_headers
from service.http.access.policy import AccessPolicy

_NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_PAGE = (
    "script-src 'self'; style-src 'self'; connect-src 'self'; "
    # Photos that need a key are fetched and shown as blobs, and so is a photo to search for.
    "img-src 'self' blob:"
)
_POLICIES = dict.fromkeys(("/", "/state", "/docs"), f"{_NOTHING}; {_PAGE}".encode())
_DATA_POLICY = _NOTHING.encode()

_FIXED = [
    # A browser takes an answer for what it says it is, whatever is inside.
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    # Other sites cannot show our photos; pages of allowed origins read them with fetch.
    (b"cross-origin-resource-policy", b"same-origin"),
]


class AnswerHeaders:
    """Adds the headers; the outermost layer, so that nothing is answered without them."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        """Wrap an application."""
        self._app = app
        self._origins = {
            origin.encode("latin-1"): cors_headers(origin) for origin in policy.origins
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        added = [
            *_FIXED,
            (b"content-security-policy", _POLICIES.get(scope["path"], _DATA_POLICY)),
        ]
        if self._origins:
            # A cache must not give one page the answer that allows another.
            added.append((b"vary", b"Origin"))
            origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
            added += self._origins.get(origin, ())

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, send_with_headers)
