"""What holds for the address and the method of every route, whatever it answers."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

import httpx
import pytest

from aladin_service.http.access.control import NEEDED, Needed

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

CLOSED = [row for row in NEEDED if row.scope != "open"]
OPEN = [row for row in NEEDED if row.scope == "open"]
GETS = [row for row in NEEDED if row.method == "GET"]


def address(row: Needed) -> str:
    """An address of a route, of something that is there."""
    path = row.path.replace("{item_id:path}", "plain").replace("{target}", "images")
    return path.replace("{model:path}", "aladin").replace("{name}", "page.js")


def asked(row: Needed) -> str:
    """Name of a test of one route."""
    return f"{row.method} {row.path}"


@pytest.mark.parametrize("row", CLOSED, ids=asked)
async def test_an_unknown_parameter_is_refused_by_every_route(
    service: Service, row: Needed
) -> None:
    async with service() as client:
        answer = await client.request(row.method, address(row), params={"bogus": "1"})
    assert answer.status_code == 422, answer.text
    assert "bogus: unknown parameter; " in answer.text


async def test_a_refused_parameter_names_the_known_ones(service: Service) -> None:
    async with service() as client:
        listed = await client.get("/v1/items/images", params={"cursor": "plain", "limit": 2})
        drawn = await client.get("/v1/explain", params={"id": "plain", "q": "a dog"})
        added = await client.post("/v1/items/texts?on_duplicat=skip", json={"id": "a", "text": "a"})
        index = await client.get("/v1/index", params={"n" * 5000: ""})
    assert listed.json()["error"]["code"] == "invalid_field"
    assert listed.json()["error"]["message"] == (
        "cursor: unknown parameter; known are limit, after, sort, order, filter"
    )
    known = drawn.json()["error"]["message"].partition("; known are ")[2].split(", ")
    assert sorted(known) == ["box", "id", "query_id", "text"]
    assert "on_duplicat: unknown parameter; known are on_duplicate" in added.text
    assert index.json()["error"]["message"] == f"{'n' * 100}: unknown parameter; there are none"


async def test_a_repeated_parameter_is_refused(service: Service) -> None:
    async with service() as client:
        answer = await client.get("/v1/items/images?limit=1&limit=2")
        # What the routes describe is taken as before.
        page = await client.get("/v1/items/images?limit=1&sort=number&order=asc&filter=%7B%7D")
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "limit: given 2 times"
    assert [item["id"] for item in page.json()["items"]] == ["dogs/red#1"]


@pytest.mark.parametrize("row", OPEN, ids=asked)
async def test_monitors_and_browsers_may_add_parameters_to_probes_and_pages(
    service: Service, row: Needed
) -> None:
    async with service() as client:
        answer = await client.get(f"{address(row)}?cachebuster=1&cachebuster=2")
    assert answer.status_code == 200


@pytest.mark.parametrize("row", GETS, ids=asked)
async def test_a_line_break_behind_a_path_is_part_of_it(service: Service, row: Needed) -> None:
    async with service() as client:
        answers = [await client.get(f"{address(row)}{tail}") for tail in ("%0a", "%0A%0a", "%0d")]
    assert {answer.status_code for answer in answers} <= {404, 422}, answers


async def test_a_line_break_inside_an_id_is_part_of_it(service: Service) -> None:
    async with service() as client:
        answer = await client.get("/v1/items/images/pl%0Aain")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_id"


@pytest.mark.parametrize(
    "path", ["/v1/images/%ff", "/v1/items/texts/a%c3", "/v1/items/texts?sort=%e9"]
)
async def test_an_address_that_is_not_utf_8_is_refused(service: Service, path: str) -> None:
    async with service() as client:
        answer = await client.get(path)
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "the address is not UTF-8"


def test_head_is_answered_as_get_without_a_body(url: str) -> None:
    port = urlsplit(url).port
    for row in GETS:
        path = address(row)
        if row.path.startswith("/v1/explain"):
            path += "?id=plain&text=a%20dog"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path)
        got = connection.getresponse()
        body = got.read()
        # On the same connection: bytes of a body would be taken for the next answer.
        connection.request("HEAD", path)
        headed = connection.getresponse()
        assert (headed.status, headed.read()) == (got.status, b""), path
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"status":"ok"}'
        connection.close()
        assert got.status == 200, (path, body)
        assert headed.headers.keys() == got.headers.keys()
        assert headed.headers["content-type"] == got.headers["content-type"]
        if row.path != "/metrics":  # which counts the requests between the two
            assert headed.headers["content-length"] == str(len(body)), path


def test_head_is_counted_by_its_route_and_offered_where_get_is(url: str) -> None:
    head = httpx.head(f"{url}/v1/items/images/plain")
    assert (head.status_code, head.content) == (200, b"")
    counted = 'method="HEAD",route="/v1/items/{target}/{item_id}",status="200"'
    assert f"aladin_http_requests_total{{{counted}}}" in httpx.get(f"{url}/metrics").text
    assert httpx.put(f"{url}/v1/index").headers["Allow"] == "GET, HEAD"
    refused = httpx.head(f"{url}/v1/search/images")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
