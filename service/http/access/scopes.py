"""What a request must be allowed to do: one table of everything that the service answers."""

from __future__ import annotations

from typing import Literal, NamedTuple

from starlette.routing import compile_path

from service.keys.api_key import Scope


class Needed(NamedTuple):
    """One row of the table.

    Attributes:
        method: of HTTP.
        path: of the route, as the route writes it.
        scope: that a request needs; "open": none, anybody may ask.
    """

    method: str
    path: str
    scope: Scope | Literal["open"]


# What is not here cannot be reached, whether there is a route or not: a new route that nobody
# thought about stays closed.
NEEDED = (
    Needed("POST", "/v1/search/images", "read"),
    Needed("POST", "/v1/search/texts", "read"),
    Needed("POST", "/v1/search/batch", "read"),
    Needed("GET", "/v1/explain.png", "read"),
    Needed("POST", "/v1/explain.png", "read"),
    Needed("POST", "/knn-service", "read"),
    Needed("POST", "/metadata", "read"),
    Needed("GET", "/indices-list", "read"),
    Needed("GET", "/v1/items/{target}/{item_id:path}", "read"),
    Needed("POST", "/v1/items/{target}", "write"),
    Needed("DELETE", "/v1/items/{target}/{item_id:path}", "write"),
    Needed("GET", "/v1/images/{item_id:path}", "read"),
    Needed("GET", "/v1/index", "read"),
    Needed("GET", "/v1/index/state", "read"),
    # It tells what others searched for.
    Needed("GET", "/v1/index/slow-queries", "metrics"),
    Needed("GET", "/healthz", "open"),
    Needed("GET", "/readyz", "open"),
    Needed("GET", "/metrics", "metrics"),
    # The page and the description tell nothing of the index; the page asks for a key.
    Needed("GET", "/", "open"),
    Needed("GET", "/state", "open"),
    Needed("GET", "/page/limits.json", "open"),
    Needed("GET", "/page/{name}", "open"),
    Needed("GET", "/docs", "open"),
    Needed("GET", "/openapi.json", "open"),
)

_BY_PATH: dict[str, dict[str, Needed]] = {}
for _row in NEEDED:
    _BY_PATH.setdefault(_row.path, {})[_row.method] = _row
_PATTERNS = [(compile_path(path)[0], rows) for path, rows in _BY_PATH.items() if "{" in path]


def rows_of(path: str) -> dict[str, Needed]:
    """Return the rows of a path by method; none where the service has nothing.

    Args:
        path: of a request, decoded.
    """
    exact = _BY_PATH.get(path)
    if exact is not None:
        return exact
    # Not match: the router's own patterns would take "x" and a line break at the end for "x".
    return next((rows for pattern, rows in _PATTERNS if pattern.fullmatch(path)), {})
