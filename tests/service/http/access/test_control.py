"""Who reaches a route, and what the others are told."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aladin_service.api_key import SCOPES
from aladin_service.http.access.control import NEEDED, rows_of
from aladin_service.http.app import create_app
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from tests.service.http.conftest import Clock, FakeWorkers, Open, opened, told

pytestmark = pytest.mark.anyio

Request = tuple[str, str, dict[str, Any]]

SEARCH: Request = ("POST", "/v1/search/images", {"json": {"text": "a dog"}})
ADD: Request = ("POST", "/v1/items/texts", {"json": {"id": "new", "text": "a dog"}})
DELETE: Request = ("DELETE", "/v1/items/texts/old", {})
METRICS: Request = ("GET", "/metrics", {})
CLOSED = {"read": SEARCH, "write": ADD, "metrics": METRICS}


async def ask(client: httpx.AsyncClient, what: Request, **headers: str) -> httpx.Response:
    """Send one of the requests above with `headers`, _ for -."""
    method, path, body = what
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.request(method, path, headers=given, **body)


async def statuses(client: httpx.AsyncClient, *asked: Request, **headers: str) -> list[int]:
    return [(await ask(client, each, **headers)).status_code for each in asked]


def batch(count: int) -> Request:
    queries = [{"text": "a", "target": "images"}] * count
    return "POST", "/v1/search/batch", {"json": {"queries": queries}}


async def test_without_keys_everything_is_open_on_this_machine(
    door: Open, workers: FakeWorkers
) -> None:
    async with door() as client:
        assert await statuses(client, SEARCH, ADD, DELETE, METRICS) == [200, 201, 200, 200]
        # An old key in a client's settings is no fault.
        assert await statuses(client, SEARCH, x_api_key="old") == [200]
        own = {"origin": "http://127.0.0.1:8000", "sec_fetch_site": "same-origin"}
        assert await statuses(client, SEARCH, ADD, **own) == [200, 201]
    assert len(workers.done) >= 6


async def test_a_key_opens_what_it_is_for_and_nothing_else(
    door: Open, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(host="0.0.0.0", keys_file=keys_file) as client:
        for (name, key), needed in itertools.product(keys.items(), SCOPES):
            bearer = f"bearer  {key} "
            for headers in ({"authorization": bearer}, {"authorization": bearer, "x_api_key": key}):
                answer = await ask(client, CLOSED[needed], **headers)
                if name == needed:
                    assert answer.is_success
                    continue
                assert told(answer)[:2] == (403, "missing_scope")
                challenge = answer.headers["WWW-Authenticate"]
                assert challenge.endswith(f'error="insufficient_scope", scope="{needed}"')
                assert repr(needed) in answer.text
                assert repr(name) in answer.text


async def test_every_closed_route_refuses_who_has_no_key_or_a_wrong_one_and_no_open_one_does(
    door: Open, workers: FakeWorkers, clock: Clock, keys_file: Path, keys: dict[str, str]
) -> None:
    wrong = [
        ({"authorization": "Bearer wrong"}, "invalid API key"),
        ({"x-api-key": keys["read"][:-1]}, "invalid API key"),
        ({"x-api-key": ""}, "invalid API key"),
        ({"authorization": keys["read"]}, "expected Authorization: Bearer KEY"),
        ({"authorization": "Basic dXNlcjprZXk="}, "expected Authorization: Bearer KEY"),
        (
            {"authorization": f"Bearer {keys['read']}", "x-api-key": keys["write"]},
            "the request contains different keys",
        ),
        (
            [("x-api-key", keys["read"]), ("x-api-key", keys["write"])],
            "the request contains different keys",
        ),
        ({}, "an API key is required"),
    ]
    challenge = 'Bearer realm="aladin-search"'
    async with door(host="0.0.0.0", keys_file=keys_file) as client:
        for row in NEEDED:
            path = row.path.replace("{target}", "texts").replace("{item_id:path}", "x")
            path = path.replace("{name}", "page.js")
            if row.scope == "open":
                answer = await client.request(row.method, path, headers={"host": "pod-7:80"})
                assert answer.status_code == 200
                continue
            for headers, message in wrong:
                answer = await client.request(row.method, path, headers=headers)
                status, code, said = told(answer)
                # Cohere's shape has no code.
                assert (status, code) == (401, "" if "rerank" in path else "unauthorized")
                assert said.startswith(message)
                invalid = f'{challenge}, error="invalid_token"'
                assert answer.headers["WWW-Authenticate"] == (invalid if headers else challenge)
                assert not any(secret in answer.text for secret in keys.values())
            clock.now_s += 100  # too many wrong keys would have to wait
    assert workers.done == []


async def test_a_refused_request_is_answered_before_its_body_is_read(
    door: Open, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys

    async def body() -> AsyncIterator[bytes]:
        pytest.fail("somebody read the body")
        yield b""

    async with door(keys_file=keys_file) as client:
        assert (await client.post("/v1/items/texts", content=body())).status_code == 401


async def test_without_the_file_of_keys_nobody_gets_in_who_needs_one(
    door: Open, workers: FakeWorkers, clock: Clock, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(keys_file=keys_file) as client:
        assert (await client.get("/readyz")).status_code == 200
        away = keys_file.rename(keys_file.with_name("away"))
        clock.now_s += 5.1
        for key in (keys["read"], "wrong"):
            answer = await ask(client, SEARCH, x_api_key=key)
            assert told(answer)[:2] == (503, "keys_missing")
            assert answer.headers["Retry-After"] == "1"
        assert await statuses(client, SEARCH) == [401]  # it would need one
        assert told(await client.get("/readyz"))[:2] == (503, "keys_missing")
        assert (await client.get("/healthz")).status_code == 200  # a restart would not help
        assert workers.done == []
        away.rename(keys_file)
        assert await statuses(client, SEARCH, x_api_key=keys["read"]) == [200]
        assert (await client.get("/readyz")).status_code == 200
    async with door(keys_file=keys_file, allow_anonymous=True) as client:
        keys_file.unlink()
        clock.now_s += 5.1
        assert await statuses(client, SEARCH) == [200]
        assert (await client.get("/readyz")).status_code == 200
        refused = await ask(client, ADD, x_api_key=keys["write"])
        assert told(refused)[:2] == (503, "keys_missing")


async def test_who_goes_on_with_wrong_keys_is_told_to_wait_and_nobody_else(
    door: Open, clock: Clock, keys_file: Path, keys: dict[str, str]
) -> None:
    basic = f"Basic {base64.b64encode(b'x:y').decode()}"
    wrong = [{"x_api_key": "wrong"}, {"authorization": basic}, {"x_api_key": "x" * 50}]
    async with door(host="0.0.0.0", keys_file=keys_file) as client:
        for number in range(20):
            answer = await ask(client, SEARCH, **wrong[number % 3])
            assert told(answer)[:2] == (401, "unauthorized")
        for headers, what in itertools.product(wrong, (SEARCH, ADD, METRICS)):
            answer = await ask(client, what, **headers)
            assert told(answer)[:2] == (429, "rate_limited")
            assert answer.headers["Retry-After"] == "1"
            assert "too many requests with invalid keys" in answer.text
        # Others at the same address are let in, and who has no key is asked for one.
        assert await statuses(client, SEARCH, x_api_key=keys["read"]) == [200]
        assert await statuses(client, SEARCH) == [401]
        assert await statuses(client, ("GET", "/healthz", {}), x_api_key="wrong") == [200]
        clock.now_s += 2
        assert await statuses(client, *[SEARCH] * 3, x_api_key="wrong") == [401, 401, 429]
    async with door(client=("10.0.0.9", 1), host="0.0.0.0", keys_file=keys_file) as client:
        assert await statuses(client, SEARCH, x_api_key="wrong") == [401]


async def test_beyond_this_machine_requests_without_a_key_read_and_no_more(
    door: Open, workers: FakeWorkers, keys_file: Path
) -> None:
    async with door(host="0.0.0.0", allow_anonymous=True) as client:
        assert await statuses(client, SEARCH, METRICS) == [200, 200]
        for write in (ADD, DELETE):
            refused = await ask(client, write)
            assert told(refused)[:2] == (403, "missing_scope")
            assert "requests without a key" in refused.text
    assert len(workers.done) == 2  # the search, and what /metrics asks
    key = add_key(keys_file, "write", ["write"])
    async with door(host="0.0.0.0", keys_file=keys_file, allow_anonymous=True) as client:
        # A key would help here, so it is asked for.
        assert await statuses(client, SEARCH, ADD, METRICS) == [200, 401, 401]
        assert await statuses(client, ADD, x_api_key=key) == [201]
        # A key that is wrong is never taken for none.
        assert await statuses(client, SEARCH, x_api_key="wrong") == [401]


async def test_a_rebound_name_reaches_nothing_and_names_that_were_allowed_do(
    door: Open, workers: FakeWorkers, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door() as client:
        for what in (SEARCH, ADD, METRICS, ("GET", "/v1/images/x", {})):
            refused = await ask(client, what, host="evil.example:8000")
            assert told(refused)[:2] == (421, "unknown_host")
    assert workers.done == []
    for settings, hosts in (
        (
            {"allowed_hosts": ("Search.Example",)},
            {"search.example:80": 200, "localhost": 200, "other.example": 421},
        ),
        ({"allowed_hosts": ("*",)}, {"other.example": 200}),
        # A key cannot be stolen by rebinding; who has none is asked for one under any name.
        ({"keys_file": keys_file}, {"any.example": 401}),
    ):
        async with door(**settings) as client:
            for host, status in hosts.items():
                assert await statuses(client, SEARCH, host=host) == [status]
    async with door(keys_file=keys_file) as client:
        assert await statuses(client, SEARCH, host="a.example", x_api_key=keys["read"]) == [200]


async def test_pages_of_other_sites_have_nothing_done(door: Open, workers: FakeWorkers) -> None:
    form: Request = ("POST", "/v1/search/images", {"files": {"image": b"..."}})
    headers = {"origin": "http://127.0.0.1:3000", "sec_fetch_site": "same-site"}
    async with door() as client:
        for what in (SEARCH, ADD, DELETE, form):
            refused = await ask(client, what, **headers)
            assert told(refused)[:2] == (403, "cross_site")
            assert "access-control-allow-origin" not in refused.headers
    assert workers.done == []


async def test_keys_have_their_rates_and_clients_without_one_theirs_by_address(
    door: Open, clock: Clock, keys_file: Path
) -> None:
    slow = add_key(keys_file, "slow", ["read"], requests_per_s=0.5, burst=2)
    fast = add_key(keys_file, "fast", ["read"])
    async with door(keys_file=keys_file) as client:
        assert await statuses(client, SEARCH, SEARCH, x_api_key=slow) == [200, 200]
        refused = await ask(client, SEARCH, x_api_key=slow)
        assert (told(refused)[:2], refused.headers["Retry-After"]) == ((429, "rate_limited"), "2")
        assert await statuses(client, SEARCH, x_api_key=fast) == [200]
        clock.now_s += 2
        assert await statuses(client, SEARCH, x_api_key=slow) == [200]
    settings = {"anonymous_requests_per_s": 0.1, "anonymous_burst": 1}
    async with door(**settings) as client:
        # What is open costs nothing.
        asked = (SEARCH, SEARCH, ("GET", "/healthz", {}))
        assert await statuses(client, *asked) == [200, 429, 200]
    async with door(client=("10.0.0.9", 1), **settings) as client:
        assert await statuses(client, SEARCH) == [200]


async def test_requests_cost_by_what_they_hold_and_pass_after_the_time_that_they_are_told(
    door: Open, clock: Clock, keys_file: Path
) -> None:
    items = [{"id": f"item {number}", "text": "a dog"} for number in range(30)]
    add: Request = ("POST", "/v1/items/texts", {"json": {"items": items}})
    encode: Request = ("POST", "/v1/embeddings", {"json": {"input": [{"image": "!"}] * 40}})
    key = add_key(keys_file, "key", ["read", "write"], requests_per_s=1, burst=5)
    async with door(keys_file=keys_file) as client:
        for passed_s, what, status, wait_s in (
            (0, batch(5), 200, None),
            (0, SEARCH, 429, "1"),
            (4, batch(5), 429, "2"),  # the request itself would do, its five queries are too many
            (2, batch(6), 200, None),  # 1 below nothing
            (0, batch(6), 429, "2"),
            (2, batch(6), 429, "5"),  # it may ask; its six queries need a full bucket
            (5, batch(6), 200, None),
            (6, add, 201, None),
            (0, ADD, 429, "26"),  # at 25 below nothing
            (30, encode, 422, None),  # no photo
            (0, SEARCH, 429, "36"),
            (36, ADD, 201, None),
        ):
            clock.now_s += passed_s
            answer = await ask(client, what, x_api_key=key)
            found = answer.status_code, answer.headers.get("Retry-After")
            assert found == (status, wait_s), (what[1], passed_s)


async def test_many_requests_at_once_share_one_bucket(door: Open, keys_file: Path) -> None:
    key = add_key(keys_file, "key", ["read"], requests_per_s=0.001, burst=5)
    async with door(keys_file=keys_file) as client:
        answers = await asyncio.gather(*(ask(client, SEARCH, x_api_key=key) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [429] * 15


def routes(router: Any) -> Iterator[tuple[str, str]]:
    """Every method and path that an application answers, whoever added it."""
    for route in router.routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from routes(included)
        else:
            for method in route.methods - {"HEAD"}:
                yield method, route.path


async def test_every_route_has_a_row_and_without_a_row_none_is_reached(
    workers: FakeWorkers,
) -> None:
    app = create_app(workers, ServiceSettings(), Metrics())
    assert sorted(routes(app)) == sorted((row.method, row.path) for row in NEEDED)

    @app.get("/v1/forgotten")
    async def forgotten() -> str:
        return "secret"

    async with opened(app) as client:
        for path in ("/v1/forgotten", "/v1/nothing"):
            answer = await client.get(path)
            assert told(answer)[:2] == (404, "unknown_route")
            assert "secret" not in answer.text
        wrong = await client.put("/v1/items/texts/x")
        assert told(wrong)[:2] == (405, "method_not_allowed")
        assert wrong.headers["Allow"] == "GET, HEAD, DELETE"


async def test_what_only_some_keys_open_and_what_needs_none() -> None:
    for path, scopes in (
        ("/v1/items/images/../x", {"GET": "read", "HEAD": "read", "DELETE": "write"}),
        ("/v1/images//healthz", {"GET": "read", "HEAD": "read"}),
        ("/", {"GET": "open", "HEAD": "open"}),
        *((path, {}) for path in ("", "//", "/V1/index", "/page/a/b", "/docs/x", "/healthz\n")),
    ):
        assert {method: row.scope for method, row in rows_of(path).items()} == scopes, path
    by_scope: dict[str, set[str]] = {}
    for row in NEEDED:
        by_scope.setdefault(row.scope, set()).add(f"{row.method} {row.path}")
    assert by_scope.pop("read")
    pages = ("/", "/page/limits.json", "/page/{name}", "/docs", "/openapi.json")
    assert by_scope == {
        "write": {"POST /v1/items/{target}", "DELETE /v1/items/{target}/{item_id:path}"},
        "metrics": {"GET /metrics"},
        "open": {f"GET {path}" for path in ("/healthz", "/readyz", *pages)},
    }
