"""JSON bodies: what is refused before it is parsed, and where the large ones are parsed."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI, Request

from aladin_service.http import bodies
from aladin_service.http.access.policy import make_policy
from aladin_service.http.bodies import read_json_object, run_sized
from aladin_service.http.error_responses import install_error_handlers
from aladin_service.http.middleware import RequestContext
from aladin_service.http.shared_state import ServiceState
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.workers import Workers

LIMIT_BYTES = 2000
LARGE_BYTES = 300_000
PICTURE = base64.b64encode(bytes(range(256)) * 40).decode()


@pytest.fixture
def state() -> ServiceState:
    settings = ServiceSettings(max_json_bytes=LIMIT_BYTES)
    return ServiceState(cast(Workers, None), settings, Metrics(), make_policy(settings))


@pytest.fixture
def post(state: ServiceState) -> Callable[..., httpx.Response]:
    """Sends a body to a service that answers with the names of its fields."""
    app = FastAPI()
    install_error_handlers(app)
    app.add_middleware(RequestContext, metrics=Metrics())

    @app.post("/one")
    async def one(request: Request) -> list[str]:
        return list((await read_json_object(request, state)).fields)

    @app.post("/many")
    async def many(request: Request) -> list[str]:
        return list((await read_json_object(request, state, many=True)).fields)

    def send(path: str, body: str | bytes) -> httpx.Response:
        async def sent() -> httpx.Response:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.post(path, content=body)

        return asyncio.run(sent())

    return send


def sized(num_bytes: int, **fields: Any) -> str:
    """JSON of a length, filled up with a text."""
    bare = len(json.dumps({**fields, "text": ""}))
    return json.dumps({**fields, "text": "a" * (num_bytes - bare)})


def test_json_may_be_as_long_as_the_limit_and_no_longer(
    post: Callable[..., httpx.Response],
) -> None:
    assert post("/one", sized(LIMIT_BYTES)).json() == ["text"]
    refused = post("/one", sized(LIMIT_BYTES + 1))
    assert refused.status_code == 413
    error = refused.json()["error"]
    assert error["code"] == "body_too_large"
    assert error["message"] == (
        "the body exceeds the limit of 2000 bytes of JSON besides photos and regions"
        " (ALADIN_MAX_JSON_BYTES)"
    )
    assert post("/many", sized(LIMIT_BYTES + 1)).status_code == 200


@pytest.mark.parametrize("name", ["image", "regions"])
@pytest.mark.parametrize("colon", [":", " : ", "\n:\t"])
def test_pictures_do_not_count(post: Callable[..., httpx.Response], name: str, colon: str) -> None:
    wrapped = PICTURE.replace("/", "\\/").replace("A", "A\\n")
    for picture in (PICTURE, wrapped):
        body = f'{{"a": [1, {{"b": ""}}], "{name}"{colon}"{picture}"}}'
        assert post("/one", body).json() == ["a", name]
    two = f'{{"image"{colon}"{PICTURE}", "k": 1, "regions"{colon}"{PICTURE}"}}'
    assert post("/one", two).json() == ["image", "k", "regions"]
    rest = "b" * LIMIT_BYTES
    assert post("/one", f'{{"{name}"{colon}"{PICTURE}", "text": "{rest}"}}').status_code == 413
    assert post("/one", f'{{"text": "{rest}", "{name}"{colon}"{PICTURE}"}}').status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        '{"image": ' + "1" * 2 * LIMIT_BYTES + "}",  # no text
        '{"image": [' + '"",' * LIMIT_BYTES + '""]}',
        '{"image":"",' * LIMIT_BYTES + "}",  # many small ones
        '{"image":"\\"' + "," * 2 * LIMIT_BYTES + '"}',  # base64 has no quotation marks
        '{"text": "\\"image\\":\\"' + "a" * 2 * LIMIT_BYTES + '"}',  # inside of a text
        '{"image2":"' + "a" * 2 * LIMIT_BYTES + '"}',
        '{"images":"' + "a" * 2 * LIMIT_BYTES + '"}',
    ],
)
def test_what_is_no_picture_counts(post: Callable[..., httpx.Response], body: str) -> None:
    assert post("/one", body).status_code == 413


def test_a_picture_without_an_end_is_broken_json(post: Callable[..., httpx.Response]) -> None:
    refused = post("/one", '{"image": "' + "A" * 2 * LIMIT_BYTES)
    assert refused.status_code == 422
    assert "Invalid JSON" in refused.json()["error"]["message"]


@pytest.mark.parametrize("values", ["[],", "0,", '{"a":0},', '"a",', '"",'])
def test_a_large_body_has_a_limit_of_values(
    post: Callable[..., httpx.Response], monkeypatch: pytest.MonkeyPatch, values: str
) -> None:
    parsed: list[int] = []
    parse = bodies.from_json
    monkeypatch.setattr(
        bodies, "from_json", lambda body, **how: parsed.append(len(body)) or parse(body, **how)
    )
    refused = post("/many", '{"items": [' + values * 400_000 + "0]}")
    assert refused.status_code == 413
    assert "400000 names and values in JSON" in refused.json()["error"]["message"]
    assert not parsed  # it was counted, not parsed


def test_a_full_batch_with_the_largest_filters_is_within_the_limits(
    post: Callable[..., httpx.Response],
) -> None:
    filter_ = {"id": [f"photos/{number:06d}.jpg" for number in range(1000)]}
    query = {"target": "images", "text": "a dog, a cat, and a bird", "k": 10, "filter": filter_}
    answer = post("/many", json.dumps({"queries": [query] * 256}))
    assert answer.status_code == 200, answer.text


def test_a_large_body_is_worked_on_beside_the_event_loop_one_at_a_time(
    state: ServiceState,
) -> None:
    running: list[str] = []
    most = 0

    def work(name: str) -> str:
        nonlocal most
        running.append(name)
        most = max(most, len(running))
        time.sleep(0.02)
        running.remove(name)
        return threading.current_thread().name

    async def all_of_them() -> tuple[str, list[str]]:
        small = await run_sized(state, LARGE_BYTES // 2, work, "small")
        large = [run_sized(state, LARGE_BYTES, work, f"large {each}") for each in range(5)]
        return small, await asyncio.gather(*large)

    small, large = asyncio.run(all_of_them())
    own = threading.current_thread().name
    assert small == own
    assert own not in large
    assert most == 1
