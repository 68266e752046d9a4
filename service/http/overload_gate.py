"""Refuses searches that would find no place, before anything is made of them.

A refusal that costs as much as reading the search and finding its route leaves the processors to
the refused: at twice the load that the service carries it would then answer next to nothing.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.content_length import declared_length
from service.http.errors import error_response
from service.work.workers import Workers

_PATHS = frozenset({"/v1/search/images", "/v1/search/texts"})
# A shorter body holds no photo, so it is a text or the id of an item, which wait for the same
# slots. A longer one is read first: it may be of a lane that has room.
_TEXT_BYTES = 2048


class OverloadGate:
    """Answers 429 or 503 in place of the routes when a text would be refused."""

    def __init__(self, app: ASGIApp, workers: Workers) -> None:
        """Wrap an application.

        Args:
            app: whose searches the workers answer.
            workers: know what waits.
        """
        self._app = app
        self._workers = workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["path"] in _PATHS and _is_text(scope):
            refusal = self._workers.refusal("text")
            if refusal is not None:
                scope["state"]["route"] = scope["path"]
                answer = error_response(refusal, scope["state"]["request_id"])
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_text(scope: Scope) -> bool:
    length = declared_length(scope)
    return length is not None and length <= _TEXT_BYTES
