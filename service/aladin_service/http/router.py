"""What all routes have in common, whatever they answer.

A path matches as a whole, HEAD is answered where GET is, and the parameters of an address are those
that its route describes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from aladin_network.errors import InputError
from aladin_service.http.access.control import path_pattern, rows_of

_SHOWN_CHARS = 100


class ServiceRoute(APIRoute):
    """A route whose address is checked before it is called."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.path_regex = path_pattern(path)
        found = get_flat_params(self.dependant)
        self._known = [each.alias for each in found if isinstance(each.field_info, Query)]
        # Monitors and browsers put parameters of their own behind the addresses of probes and
        # pages, which take none.
        self._checked = any(row.scope != "open" for row in rows_of(path).values())

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(_as_get(scope))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; the server leaves out the body of an answer to HEAD."""
        self.check_address(scope)
        await super().handle(_as_get(scope), receive, send)

    def check_address(self, scope: Scope) -> None:
        """Check the path and the parameters of a request.

        A parameter that has no effect would be a filter that does not filter, or a page after the
        first that is the first.
        """
        if not self._checked:
            return
        query: bytes = scope["query_string"]
        try:
            unquote_to_bytes(scope.get("raw_path", b"") + b"?" + query).decode()
        except UnicodeDecodeError:
            raise InputError("the address is not UTF-8") from None
        for name, count in Counter(name for name, _ in QueryParams(query).multi_items()).items():
            if name not in self._known:
                known = f"known are {', '.join(self._known)}" if self._known else "there are none"
                raise InputError(f"{name[:_SHOWN_CHARS]}: unknown parameter; {known}")
            if count > 1:
                raise InputError(f"{name}: given {count} times")


class ServiceRouter(APIRouter):
    def __init__(self, **options: Any) -> None:
        # The name of an operation is the method's name in a generated client.
        super().__init__(
            route_class=ServiceRoute,
            generate_unique_id_function=lambda route: route.name,
            **options,
        )


def _as_get(scope: Scope) -> Scope:
    return {**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope
