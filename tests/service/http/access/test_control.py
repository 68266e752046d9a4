"""Who reaches a route, and what the others are told."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aladin_service.api_key import SCOPES
from aladin_service.http.access.control import NEEDED
from aladin_service.keys_file import add_key, remove_key

pytestmark = pytest.mark.anyio

SEARCH = ("POST", "/v1/search/images", {"json": {"text": "a dog"}})
ADD = ("POST", "/v1/items/texts", {"json": {"id": "new", "text": "a dog"}})
DELETE = ("DELETE", "/v1/items/texts/old", {})
METRICS = ("GET", "/metrics", {})
CLOSED = {"read": SEARCH, "write": ADD, "metrics": METRICS}


async def ask(client: httpx.AsyncClient, what: Any, **headers: str) -> httpx.Response:
    """Send one of the requests above with `headers`, _ for -."""
    method, path, body = what
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.request(method, path, headers=given, **body)


def code_of(response: httpx.Response) -> str:
    """Return the error's code, of an answer in the form of all errors."""
    error = response.json()["error"]
    assert error["request_id"] == response.headers["X-Request-ID"]
    return error["code"]


async def test_without_keys_everything_is_open_on_this_machine(door: Any, workers: Any) -> None:
    async with door() as client:
        assert (await ask(client, SEARCH)).status_code == 200
        assert (await ask(client, ADD)).status_code == 201
        assert (await ask(client, DELETE)).status_code == 200
        assert (await ask(client, METRICS)).status_code == 200
        # An old key in a client's settings is no fault.
        assert (await ask(client, SEARCH, x_api_key="old")).status_code == 200
    assert len(workers.done) >= 4


async def test_a_key_opens_what_it_is_for_and_nothing_else(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(host="0.0.0.0", keys_file=keys_file) as client:
        for (name, key), needed in itertools.product(keys.items(), SCOPES):
            for headers in ({"authorization": f"Bearer {key}"}, {"x_api_key": key}):
                answer = await ask(client, CLOSED[needed], **headers)
                if name == needed:
                    assert answer.status_code in (200, 201)
                    continue
                assert (answer.status_code, code_of(answer)) == (403, "missing_scope")
                challenge = answer.headers["WWW-Authenticate"]
                assert challenge.endswith(f'error="insufficient_scope", scope="{needed}"')
                assert repr(needed) in answer.text
                assert repr(name) in answer.text


async def test_every_closed_route_refuses_who_has_no_key_or_a_wrong_one(
    door: Any, workers: Any, clock: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    wrong = [
        ({"authorization": "Bearer wrong"}, "invalid API key"),
        ({"x-api-key": keys["read"][:-1]}, "invalid API key"),
        ({"x-api-key": ""}, "invalid API key"),
        (
            {"authorization": f"Basic {base64.b64encode(b'user:password').decode()}"},
            "expected Authorization: Bearer KEY, got another scheme",
        ),
        (
            {"authorization": f"Bearer {keys['read']}", "x-api-key": keys["write"]},
            "the request contains different keys",
        ),
        ({}, "an API key is required"),
    ]
    async with door(host="0.0.0.0", keys_file=keys_file) as client:
        for row in NEEDED:
            if row.scope == "open":
                continue
            path = row.path.replace("{target}", "texts").replace("{item_id:path}", "x")
            for headers, message in wrong:
                answer = await client.request(row.method, path, headers=headers)
                assert answer.status_code == 401
                body = answer.json()
                if row.path.endswith("/rerank"):  # in Cohere's shape, which has no code
                    assert body["message"] == message
                else:
                    assert body["error"]["code"] == "unauthorized"
                    assert body["error"]["message"] == message
                challenge = 'Bearer realm="aladin-search"'
                wrong_key = f'{challenge}, error="invalid_token"'
                assert answer.headers["WWW-Authenticate"] == (wrong_key if headers else challenge)
                assert not any(secret in answer.text for secret in keys.values())
            clock.now_s += 100  # too many wrong keys would have to wait
    assert workers.done == []


async def test_open_routes_need_no_key_and_no_name(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys
    async with door(host="0.0.0.0", keys_file=keys_file) as client:
        for row in NEEDED:
            if row.scope == "open":
                path = row.path.replace("{name}", "page.js")
                answer = await client.request(row.method, path, headers={"host": "pod-7:80"})
                assert answer.status_code == 200


async def test_a_refused_request_is_answered_before_its_body_is_read(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys

    async def body() -> AsyncIterator[bytes]:
        pytest.fail("somebody read the body")
        yield b""

    async with door(keys_file=keys_file) as client:
        answer = await client.post("/v1/items/texts", content=body())
    assert answer.status_code == 401


async def test_a_key_is_taken_up_and_revoked_without_a_restart(
    door: Any, clock: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(keys_file=keys_file) as client:
        assert (await ask(client, SEARCH, x_api_key=keys["read"])).status_code == 200
        remove_key(keys_file, "read")
        new = add_key(keys_file, "new", ["read"])
        clock.now_s += 1.1
        assert (await ask(client, SEARCH, x_api_key=keys["read"])).status_code == 401
        assert (await ask(client, SEARCH, x_api_key=new)).status_code == 200


async def test_without_the_file_of_keys_nobody_gets_in(
    door: Any, workers: Any, clock: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(keys_file=keys_file) as client:
        assert (await client.get("/readyz")).status_code == 200
        away = keys_file.rename(keys_file.with_name("away"))
        clock.now_s += 5.1
        for headers in ({"x_api_key": keys["read"]}, {"x_api_key": "wrong"}):
            answer = await ask(client, SEARCH, **headers)
            assert (answer.status_code, code_of(answer)) == (503, "keys_missing")
            assert answer.headers["Retry-After"] == "1"
        assert (await ask(client, SEARCH)).status_code == 401  # it would need one
        ready = await client.get("/readyz")
        assert (ready.status_code, code_of(ready)) == (503, "keys_missing")
        assert (await client.get("/healthz")).status_code == 200  # a restart would not help
        assert workers.done == []
        away.rename(keys_file)
        assert (await ask(client, SEARCH, x_api_key=keys["read"])).status_code == 200
        assert (await client.get("/readyz")).status_code == 200


async def test_who_needs_no_key_is_served_without_the_file_of_keys(
    door: Any, clock: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(keys_file=keys_file, allow_anonymous=True) as client:
        keys_file.unlink()
        clock.now_s += 5.1
        assert (await ask(client, SEARCH)).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        answer = await ask(client, ADD, x_api_key=keys["write"])
        assert (answer.status_code, code_of(answer)) == (503, "keys_missing")


async def test_who_goes_on_with_wrong_keys_is_told_to_wait_and_nobody_else(
    door: Any, clock: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    wrong = [{"x_api_key": "wrong"}, {"authorization": "Basic eDp5"}, {"x_api_key": "x" * 50}]
    async with door(host="0.0.0.0", keys_file=keys_file) as client:
        for number in range(20):
            answer = await ask(client, SEARCH, **wrong[number % 3])
            assert (answer.status_code, code_of(answer)) == (401, "unauthorized")
        for headers in wrong:
            for what in (SEARCH, ADD, METRICS):
                answer = await ask(client, what, **headers)
                assert (answer.status_code, code_of(answer)) == (429, "rate_limited")
                assert answer.headers["Retry-After"] == "1"
                assert "too many requests with invalid keys" in answer.text
        # Others at the same address are let in, and who has no key is asked for one.
        assert (await ask(client, SEARCH, x_api_key=keys["read"])).status_code == 200
        assert (await ask(client, SEARCH)).status_code == 401
        assert (await client.get("/healthz", headers={"x-api-key": "wrong"})).status_code == 200
        clock.now_s += 2
        statuses = [(await ask(client, SEARCH, x_api_key="wrong")).status_code for _ in range(3)]
        assert statuses == [401, 401, 429]
    async with door(client=("10.0.0.9", 1), host="0.0.0.0", keys_file=keys_file) as client:
        assert (await ask(client, SEARCH, x_api_key="wrong")).status_code == 401


async def test_beyond_this_machine_requests_without_a_key_read_and_no_more(
    door: Any, workers: Any
) -> None:
    async with door(host="0.0.0.0", allow_anonymous=True) as client:
        assert (await ask(client, SEARCH)).status_code == 200
        assert (await ask(client, METRICS)).status_code == 200
        for write in (ADD, DELETE):
            answer = await ask(client, write)
            assert (answer.status_code, code_of(answer)) == (403, "missing_scope")
            assert "requests without a key" in answer.text
    assert len(workers.done) == 2  # the search, and what /metrics asks


async def test_beside_keys_requests_without_one_may_be_let_in_to_read(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(host="0.0.0.0", keys_file=keys_file, allow_anonymous=True) as client:
        assert (await ask(client, SEARCH)).status_code == 200
        # A key would help here, so it is asked for.
        for closed in (ADD, METRICS):
            assert (await ask(client, closed)).status_code == 401
        assert (await ask(client, ADD, x_api_key=keys["write"])).status_code == 201
        # A key that is wrong is never taken for none.
        assert (await ask(client, SEARCH, x_api_key="wrong")).status_code == 401


async def test_a_rebound_name_reaches_nothing(door: Any, workers: Any) -> None:
    async with door() as client:
        for what in (SEARCH, ADD, METRICS, ("GET", "/v1/images/x", {})):
            answer = await ask(client, what, host="evil.example:8000")
            assert (answer.status_code, code_of(answer)) == (421, "unknown_host")
    assert workers.done == []


async def test_names_that_were_allowed_do(door: Any, keys_file: Path, keys: dict[str, str]) -> None:
    async with door(allowed_hosts=("Search.Example",)) as client:
        assert (await ask(client, SEARCH, host="search.example:80")).status_code == 200
        assert (await ask(client, SEARCH, host="localhost")).status_code == 200
        assert (await ask(client, SEARCH, host="other.example")).status_code == 421
    async with door(allowed_hosts=("*",)) as client:
        assert (await ask(client, SEARCH, host="other.example")).status_code == 200
    # A key cannot be stolen by rebinding; who has none is asked for one under any name.
    async with door(keys_file=keys_file) as client:
        assert (
            await ask(client, SEARCH, host="any.example", x_api_key=keys["read"])
        ).status_code == 200
        assert (await ask(client, SEARCH, host="any.example")).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"origin": "http://127.0.0.1:3000", "sec_fetch_site": "same-site"},
    ],
)
async def test_pages_of_other_sites_have_nothing_done(
    door: Any, workers: Any, headers: dict[str, str]
) -> None:
    form = ("POST", "/v1/search/images", {"files": {"image": b"..."}})
    async with door() as client:
        for what in (SEARCH, ADD, DELETE, form):
            answer = await ask(client, what, **headers)
            assert (answer.status_code, code_of(answer)) == (403, "cross_site")
            assert "access-control-allow-origin" not in answer.headers
    assert workers.done == []


async def test_the_services_own_page_may(door: Any) -> None:
    async with door() as client:
        own = {"origin": "http://127.0.0.1:8000", "sec_fetch_site": "same-origin"}
        assert (await ask(client, SEARCH, **own)).status_code == 200
        assert (await ask(client, ADD, **own)).status_code == 201


async def test_a_key_has_its_rate_whoever_else_asks(door: Any, clock: Any, keys_file: Path) -> None:
    slow = add_key(keys_file, "slow", ["read"], requests_per_s=0.5, burst=2)
    fast = add_key(keys_file, "fast", ["read"])
    async with door(keys_file=keys_file) as client:
        for _ in range(2):
            assert (await ask(client, SEARCH, x_api_key=slow)).status_code == 200
        answer = await ask(client, SEARCH, x_api_key=slow)
        assert (answer.status_code, code_of(answer)) == (429, "rate_limited")
        assert answer.headers["Retry-After"] == "2"
        assert (await ask(client, SEARCH, x_api_key=fast)).status_code == 200
        clock.now_s += 2
        assert (await ask(client, SEARCH, x_api_key=slow)).status_code == 200


async def test_a_batch_costs_its_queries(door: Any, clock: Any, keys_file: Path) -> None:
    key = add_key(keys_file, "key", ["read"], requests_per_s=1, burst=4)
    queries = [{"text": "a", "target": "images"}] * 4
    batch = ("POST", "/v1/search/batch", {"json": {"queries": queries}})
    async with door(keys_file=keys_file) as client:
        assert (await ask(client, batch, x_api_key=key)).status_code == 200
        answer = await ask(client, SEARCH, x_api_key=key)
        assert (answer.status_code, code_of(answer)) == (429, "rate_limited")
        clock.now_s += 3
        # The request itself would do, its four queries are one too many.
        answer = await ask(client, batch, x_api_key=key)
        assert (answer.status_code, code_of(answer)) == (429, "rate_limited")


async def test_a_batch_above_the_burst_passes_after_the_time_that_it_is_told(
    door: Any, clock: Any, keys_file: Path
) -> None:
    key = add_key(keys_file, "key", ["read"], requests_per_s=1, burst=5)
    queries = [{"text": "a", "target": "images"}] * 6
    batch = ("POST", "/v1/search/batch", {"json": {"queries": queries}})
    async with door(keys_file=keys_file) as client:
        assert (await ask(client, batch, x_api_key=key)).status_code == 200  # 1 below nothing
        answer = await ask(client, batch, x_api_key=key)
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")
        clock.now_s += 2
        # It may ask; its six queries need a full bucket.
        answer = await ask(client, batch, x_api_key=key)
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
        clock.now_s += 5
        assert (await ask(client, batch, x_api_key=key)).status_code == 200


async def test_what_is_added_and_asked_for_costs_by_the_item(
    door: Any, clock: Any, keys_file: Path
) -> None:
    key = add_key(keys_file, "key", ["read", "write"], requests_per_s=1, burst=5)
    items = [{"id": f"item {number}", "text": "a dog"} for number in range(30)]
    add = ("POST", "/v1/items/texts", {"json": {"items": items}})
    encode = ("POST", "/v1/embeddings", {"json": {"input": [{"image": "!"}] * 40}})
    async with door(keys_file=keys_file) as client:
        assert (await ask(client, add, x_api_key=key)).status_code == 201
        refused = await ask(client, ADD, x_api_key=key)  # at 25 below nothing
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "26")
        clock.now_s += 30
        assert (await ask(client, encode, x_api_key=key)).status_code == 422  # no photo
        refused = await ask(client, SEARCH, x_api_key=key)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "36")
        clock.now_s += 36
        assert (await ask(client, ADD, x_api_key=key)).status_code == 201


async def test_clients_without_a_key_are_told_apart_by_their_addresses(door: Any) -> None:
    settings = {"anonymous_requests_per_s": 0.1, "anonymous_burst": 1}
    async with door(**settings) as client:
        assert (await ask(client, SEARCH)).status_code == 200
        assert (await ask(client, SEARCH)).status_code == 429
        # What is open costs nothing.
        assert (await client.get("/healthz")).status_code == 200
    async with door(client=("10.0.0.9", 1), **settings) as client:
        assert (await ask(client, SEARCH)).status_code == 200


async def test_many_requests_at_once_share_one_bucket(door: Any, keys_file: Path) -> None:
    key = add_key(keys_file, "key", ["read"], requests_per_s=0.001, burst=5)
    async with door(keys_file=keys_file) as client:
        answers = await asyncio.gather(*(ask(client, SEARCH, x_api_key=key) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [429] * 15


async def test_what_is_not_there_is_told_as_the_router_would(door: Any) -> None:
    async with door() as client:
        unknown = await client.get("/v1/nothing")
        assert (unknown.status_code, code_of(unknown)) == (404, "unknown_route")
        wrong = await client.put("/v1/items/texts/x")
        assert (wrong.status_code, code_of(wrong)) == (405, "method_not_allowed")
        assert wrong.headers["Allow"] == "GET, HEAD, DELETE"
