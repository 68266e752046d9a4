"""What holds for the address and the method of every route, whatever it answers."""

from __future__ import annotations

import http.client
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.dependencies.models import Dependant

from aladin_service.http import routes
from aladin_service.http.access.control import NEEDED, Needed
from aladin_service.http.router import ServiceRoute, ServiceRouter
from tests.service.http.conftest import told


def address(row: Needed) -> str:
    """An address of a route, of something that is there."""
    path = row.path.replace("{item_id:path}", "plain").replace("{target}", "images")
    return path.replace("{model:path}", "aladin").replace("{name}", "page.js")


GETS = [row for row in NEEDED if row.method == "GET"]


@pytest.mark.anyio
@pytest.mark.parametrize("row", NEEDED, ids=lambda row: f"{row.method} {row.path}")
async def test_parameters_and_line_breaks_of_every_route(
    client: httpx.AsyncClient, row: Needed
) -> None:
    """Monitors and browsers may add parameters to probes and pages; no other route takes any."""
    answer = await client.request(row.method, f"{address(row)}?bogus=1&bogus=2")
    if row.scope == "open":
        assert answer.status_code == 200
    else:
        assert (answer.status_code, "bogus: unknown parameter; " in answer.text) == (422, True)
    if row.method == "GET":  # a line break behind a path is part of it
        for tail in ("%0a", "%0A%0a", "%0d"):
            assert (await client.get(f"{address(row)}{tail}")).status_code in (404, 422)


@pytest.mark.anyio
async def test_a_refused_parameter_names_the_known_ones(client: httpx.AsyncClient) -> None:
    for path, known in (
        ("/v1/items/images", "limit, after, sort, order, filter, stack"),
        ("/v1/explain", "id, box, text, query_id"),
    ):
        message = told(await client.get(path, params={"cursor": "a", "id": "plain"}))[2]
        assert sorted(message.partition("; known are ")[2].split(", ")) == sorted(known.split(", "))
    page = await client.get("/v1/items/images?limit=1&sort=number&order=asc&filter=%7B%7D")
    assert [item["id"] for item in page.json()["items"]] == ["dogs/red#1"]


def test_head_is_answered_as_get_without_a_body_and_offered_and_counted(url: str) -> None:
    port = urlsplit(url).port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(method: str, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer, answer.read()

    for row in GETS:
        path = address(row)
        if row.path.startswith("/v1/explain"):
            path += "?id=plain&text=a%20dog"
        # On the same connection: bytes of a body would be taken for the next answer.
        got, body = ask("GET", path)
        headed, nothing = ask("HEAD", path)
        assert (got.status, headed.status, nothing) == (200, 200, b""), (path, body)
        assert headed.headers.keys() == got.headers.keys()
        assert headed.headers["content-type"] == got.headers["content-type"]
        if row.path != "/metrics":  # which counts the requests between the two
            assert headed.headers["content-length"] == str(len(body)), path
    counted = b'method="HEAD",route="/v1/items/{target}/{item_id}",status="200"'
    assert counted in ask("GET", "/metrics")[1]
    assert ask("PUT", "/v1/index")[0].headers["Allow"] == "GET, HEAD"
    refused = ask("HEAD", "/v1/search/images")[0]
    assert (refused.status, refused.headers["Allow"]) == (405, "POST")
    connection.close()


def calls(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    """What the framework calls for a request: a route and all that it depends on."""
    assert dependant.call is not None
    yield dependant.call
    for each in dependant.dependencies:
        yield from calls(each)


def test_no_request_goes_over_a_thread_of_the_framework() -> None:
    names = [module.name for module in pkgutil.iter_modules(routes.__path__)]
    assert len(names) > 5
    for name in names:
        router: ServiceRouter = import_module(f"{routes.__name__}.{name}").router
        for route in router.routes:
            assert isinstance(route, ServiceRoute)
            for call in calls(route.dependant):
                assert inspect.iscoroutinefunction(call), (route.path, call)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/v1/images/plain", "private, no-cache"),
        ("/v1/images/plain?size=24", "private, no-cache"),
        ("/v1/explain.png?text=a+dog&id=plain", "private, no-cache"),
        ("/", "no-cache"),
        ("/docs", "no-cache"),
        ("/page/page.js", "no-cache"),
    ],
)
async def test_what_a_client_has_already_is_not_sent_again(
    client: httpx.AsyncClient, path: str, kept: str
) -> None:
    first = await client.get(path)
    etag = first.headers["etag"]
    for known, status, content in (
        (etag, 304, b""),
        (f'"a", W/{etag.removeprefix("W/")}, "b"', 304, b""),
        (f'W/"{"0" * 64}"', 200, first.content),
    ):
        again = await client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (status, content), known
        assert (again.headers["etag"], again.headers["cache-control"]) == (etag, kept)
        assert "default-src 'none'" in again.headers["content-security-policy"]
    for other in ("/v1/images/plain?size=32", "/v1/explain.png?text=a+cat&id=plain"):
        assert (await client.get(other, headers={"If-None-Match": etag})).status_code == 200
