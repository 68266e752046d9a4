"""What a request must be allowed to do: one table of everything that the service answers."""

from __future__ import annotations

from typing import Literal, NamedTuple

from service.keys import Scope


class Needed(NamedTuple):
    """One row of the table.

    Attributes:
        method: of HTTP.
        path: of the route; one that ends with a slash also stands for all below it.
        scope: that a request needs; "open": none, anybody may ask.
    """

    method: str
    path: str
    scope: Scope | Literal["open"]


# What is not here cannot be reached, whether there is a route or not: a new route that nobody
# thought about stays closed.
NEEDED = (
    Needed("POST", "/v1/search/", "read"),
    Needed("POST", "/knn-service", "read"),
    Needed("POST", "/metadata", "read"),
    Needed("GET", "/indices-list", "read"),
    Needed("GET", "/v1/items/", "read"),
    Needed("POST", "/v1/items/", "write"),
    Needed("DELETE", "/v1/items/", "write"),
    Needed("GET", "/v1/images/", "read"),
    Needed("GET", "/v1/index", "read"),
    Needed("GET", "/healthz", "open"),
    Needed("GET", "/readyz", "open"),
    Needed("GET", "/metrics", "metrics"),
    # The page and the description tell nothing of the index; the page asks for a key.
    Needed("GET", "/", "open"),
    Needed("GET", "/page/", "open"),
    Needed("GET", "/docs", "open"),
    Needed("GET", "/openapi.json", "open"),
)

_EXACT: dict[str, dict[str, Needed]] = {}
_BELOW: dict[str, dict[str, Needed]] = {}
for _row in NEEDED:
    _rows = _BELOW if _row.path.endswith("/") and _row.path != "/" else _EXACT
    _rows.setdefault(_row.path, {})[_row.method] = _row


def rows_of(path: str) -> dict[str, Needed]:
    """Return the rows of a path by method; none where the service has nothing.

    Args:
        path: of a request, decoded, or of a route.
    """
    exact = _EXACT.get(path)
    if exact is not None:
        return exact
    return next((rows for start, rows in _BELOW.items() if path.startswith(start)), {})
