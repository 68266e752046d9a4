"""Answers of the service that a page receives in place of the real ones."""

from __future__ import annotations

import json
from collections.abc import Callable

from playwright.sync_api import Route


def match_nothing(route: Route) -> None:
    """Respond like the service if no hit is likely enough."""
    answer = route.fetch()
    changed = answer.json() | {
        "no_match": True,
        "probabilities_reliable": True,
        "unreliable_because": None,
    }
    route.fulfill(response=answer, json=changed)


def refuse(
    status: int, code: str, headers: dict[str, str] | None = None
) -> Callable[[Route], None]:
    """Return a handler that answers a request with an error in the service's format."""
    error = {"code": code, "message": "this is how it is refused", "request_id": "none"}

    def answer(route: Route) -> None:
        route.fulfill(
            status=status,
            headers={"Content-Type": "application/json", **(headers or {})},
            body=json.dumps({"error": error}),
        )

    return answer
