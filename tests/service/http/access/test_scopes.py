"""The table of what a request must be allowed to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from aladin_service.http.access.control import NEEDED, rows_of
from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings


def routes(router: Any) -> Iterator[tuple[str, str]]:
    """Every method and path that an application answers, whoever added it."""
    for route in router.routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from routes(included)
        else:
            for method in route.methods - {"HEAD"}:
                yield method, route.path


def test_every_route_has_a_row_and_every_row_a_route(workers: Any) -> None:
    app = create_app(workers, ServiceSettings(), Metrics())
    assert sorted(routes(app)) == sorted((row.method, row.path) for row in NEEDED)


@pytest.mark.anyio
async def test_a_route_without_a_row_cannot_be_reached(workers: Any) -> None:
    app = create_app(workers, ServiceSettings(), Metrics())

    @app.get("/v1/forgotten")
    async def forgotten() -> str:
        return "secret"

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/v1/forgotten")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_route"
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/v1/search/images", "read"),
        ("POST", "/v1/items/texts", "write"),
        ("GET", "/v1/items/texts/a/b", "read"),
        ("DELETE", "/v1/items/images/../x", "write"),
        ("GET", "/v1/images/healthz", "read"),
        ("GET", "/v1/images//healthz", "read"),
        ("GET", "/metrics", "metrics"),
        ("GET", "/", "open"),
        ("GET", "/page/page.js", "open"),
    ],
)
def test_what_a_path_needs(method: str, path: str, scope: str) -> None:
    assert rows_of(path)[method].scope == scope


@pytest.mark.parametrize(
    "path",
    [
        "",
        "//",
        "/v1/search",
        "/v1/search/images/",
        "/V1/index",
        "/page/a/b",
        "/docs/x",
        "/healthz\n",
        "/v1/index/fields\n",
    ],
)
def test_paths_that_nobody_has(path: str) -> None:
    assert rows_of(path) == {}


def test_an_item_can_be_got_and_deleted_and_its_target_added_to() -> None:
    assert set(rows_of("/v1/items/texts/x")) == {"GET", "HEAD", "DELETE"}
    assert set(rows_of("/v1/items/texts")) == {"GET", "HEAD", "POST"}


def test_what_only_some_keys_open_and_what_needs_none() -> None:
    by_scope: dict[str, set[str]] = {}
    for row in NEEDED:
        by_scope.setdefault(row.scope, set()).add(f"{row.method} {row.path}")
    assert by_scope.keys() == {"read", "write", "metrics", "open"}
    assert by_scope["write"] == {
        "POST /v1/items/{target}",
        "DELETE /v1/items/{target}/{item_id:path}",
    }
    assert by_scope["metrics"] == {"GET /metrics"}
    assert by_scope["open"] == {
        f"GET {path}"
        for path in (
            "/healthz",
            "/readyz",
            "/",
            "/page/limits.json",
            "/page/{name}",
            "/docs",
            "/openapi.json",
        )
    }
