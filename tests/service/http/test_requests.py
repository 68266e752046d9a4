"""From request bodies to queries: JSON, multipart, and everything that is wrong with them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI, Request

from aladin_service.door import query_of
from aladin_service.http.access.policy import make_policy
from aladin_service.http.error_responses import install_error_handlers
from aladin_service.http.middleware import BodyLimit, RequestContext
from aladin_service.http.routes.search import read_search_body
from aladin_service.http.shared_state import ServiceState
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.workers import Workers

LIMIT_BYTES = 100_000
TIMEOUT_S = 0.2


@pytest.fixture
def app() -> FastAPI:
    """An application that answers with what it understood."""
    app = FastAPI()
    settings = ServiceSettings()
    app.state.service = ServiceState(
        cast(Workers, None), settings, Metrics(), make_policy(settings)
    )
    install_error_handlers(app)
    app.add_middleware(
        BodyLimit, max_bytes=LIMIT_BYTES, max_bytes_in_all=LIMIT_BYTES, timeout_s=TIMEOUT_S
    )
    app.add_middleware(RequestContext, metrics=Metrics())

    @app.post("/echo")
    async def echo(request: Request) -> dict[str, Any]:
        body = await read_search_body(request, app.state.service)
        query = {name: str(value) for name, value in asdict(query_of(body)).items()}
        return {"query": query, "options": asdict(body.options())}

    return app


def post(app: FastAPI, path: str = "/echo", **request: Any) -> httpx.Response:
    """Send one request."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(path, **request)

    return asyncio.run(send())


def error_of(response: httpx.Response) -> dict[str, str]:
    """Return the error after checking that the body is an error body and nothing else."""
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"code", "message", "request_id"}
    assert error["request_id"] == response.headers["X-Request-ID"]
    return error


DEFAULTS = {
    "k": 10,
    "offset": 0,
    "candidates": None,
    "rerank": True,
    "fusion": None,
    "explain": False,
    "filter": {},
    "timeout_ms": None,
    "min_probability": None,
    "lexical": None,
    "sort": None,
}


def test_json_with_defaults(app: FastAPI) -> None:
    answer = post(app, json={"text": "a dog"}).json()
    assert answer == {"query": {"text": "a dog"}, "options": DEFAULTS}


OPTIONS = {
    "k": 3,
    "offset": 2,
    "candidates": 50,
    "rerank": False,
    "fusion": 1.0,
    "explain": True,
    "filter": {"year": 2024},
    "timeout_ms": 150.0,
    "min_probability": 0.25,
    "lexical": 0.5,
    "sort": "-taken_at",
}


def test_json_with_all_options(app: FastAPI) -> None:
    assert post(app, json={"id": "a/b#0", **OPTIONS}).json() == {
        "query": {"item_id": "a/b#0", "box": "None"},
        "options": OPTIONS,
    }


def test_multipart_takes_the_same_options_as_form_fields(app: FastAPI) -> None:
    form = {
        "k": "3",
        "offset": "2",
        "candidates": "50",
        "rerank": "false",
        "fusion": "1",
        "explain": "true",
        "filter": '{"year": 2024}',
        "timeout_ms": "150",
        "min_probability": "0.25",
        "lexical": "0.5",
        "sort": "-taken_at",
    }
    answer = post(app, data=form, files={"image": ("x.bin", b"bytes")}).json()
    assert answer["options"] == OPTIONS
    assert answer["query"]["data"] == str(b"bytes")


def test_all_items_can_be_candidates(app: FastAPI) -> None:
    body = {"text": "a dog", "candidates": "exhaustive"}
    assert post(app, json=body).json()["options"] == {**DEFAULTS, "candidates": "exhaustive"}
    form = {"candidates": "exhaustive"}
    answer = post(app, data=form, files={"image": ("x.bin", b"bytes")}).json()
    assert answer["options"] == {**DEFAULTS, "candidates": "exhaustive"}


@pytest.mark.parametrize("lines", [False, True], ids=["one line", "wrapped"])
def test_an_image_in_json_is_base64(app: FastAPI, lines: bool) -> None:
    encoded = (base64.encodebytes if lines else base64.b64encode)(b"\x00\xff" * 100).decode()
    assert post(app, json={"image": encoded}).json()["query"]["data"] == str(b"\x00\xff" * 100)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            {"text": "a", "image": "AAAA"},
            "exactly one of text, image, id, regions, or the terms of a query, got text and image",
        ),
        ({"text": "a", "id": "b"}, "got text and id"),
        ({}, "id, regions, or the terms of a query, got none"),
        ({"text": None}, "got none"),
        ({"text": "a", "colour": "red"}, "colour: unknown field"),
        ({"text": 7}, "text: Input should be a valid string"),
        ({"text": "a", "k": 0}, "k: Input should be greater than or equal to 1"),
        ({"text": "a", "k": -1}, "k: Input should be greater than or equal to 1"),
        ({"text": "a", "k": 10**9}, "k: Input should be less than or equal to 1000"),
        ({"text": "a", "k": "ten"}, "k: Input should be a valid integer"),
        ({"text": "a", "k": "10"}, "k: Input should be a valid integer"),
        ({"text": "a", "k": True}, "k: Input should be a valid integer"),
        ({"text": "a", "k": 2.5}, "k: Input should be a valid integer"),
        ({"text": "a", "k": None}, "k: Input should be a valid integer"),
        ({"text": "a", "offset": -1}, "offset: "),
        ({"text": "a", "offset": 10**6}, "offset: "),
        ({"text": "a", "candidates": 0}, "candidates: expected a whole number from 1 to 10,000"),
        ({"text": "a", "candidates": 10_001}, "candidates: expected a whole number"),
        ({"text": "a", "candidates": "some"}, "candidates: expected a whole number"),
        ({"text": "a", "timeout_ms": 0}, "timeout_ms: Input should be greater than 0"),
        ({"text": "a", "fusion": 1.5}, "fusion: Input should be less than or equal to 1"),
        ({"text": "a", "min_probability": -0.1}, "min_probability: Input should be greater than"),
        ({"text": "a", "min_probability": "likely"}, "min_probability: Input should be a valid"),
        ({"text": "a", "sort": ""}, "sort: String should have at least 1 character"),
        ({"text": "a", "sort": 7}, "sort: Input should be a valid string"),
        ({"text": "a", "rerank": "yes"}, "rerank: Input should be a valid boolean"),
        ({"text": "a", "filter": "year"}, "filter: "),
        ({"image": "not base64!"}, "image: not base64"),
        ({"image": "AAAAA"}, "image: not base64"),
        ({"image": "data:image/png,abc"}, "image: not base64"),
        ({"image": "AAAA=AAA"}, "image: not base64"),
        ({"image": "\u00c4AAA"}, "image: not base64"),
        ([1, 2], "Input should be an object"),
        ("text", "Input should be an object"),
    ],
)
def test_impossible_fields_are_named(app: FastAPI, body: object, says: str) -> None:
    response = post(app, json=body)
    assert response.status_code == 422
    assert error_of(response)["code"] == "invalid_field"
    assert says in error_of(response)["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"text": ', b"\xff\xfe", b"[" * 50_000, b'{"text": "\\ud800"}']
)
def test_broken_json(app: FastAPI, body: bytes) -> None:
    response = post(app, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert error_of(response)["code"] == "invalid_field"


@pytest.mark.parametrize(
    ("form", "files", "says"),
    [
        ({"k": "ten"}, {"image": b"x"}, "k: Input should be a valid integer"),
        ({"k": ""}, {"image": b"x"}, "k: Input should be a valid integer"),
        ({"colour": "red"}, {"image": b"x"}, "colour: unknown field"),
        ({"text": "a"}, {"image": b"x"}, "got text and image"),
        ({}, {"photo": b"x"}, "photo: expected a plain value, got a file"),
        ({"k": ["1", "2"]}, {"image": b"x"}, "k: given 2 times"),
        ({"filter": "{"}, {"image": b"x"}, "filter: not JSON"),
        ({"filter": "[" * 90_000}, {"image": b"x"}, "filter: not JSON"),
        # Deeper than what can be sent to a worker process.
        ({"filter": '{"not":' * 500 + "{}" + "}" * 500}, {"image": b"x"}, "filter: not JSON"),
        ({"filter": "[1]"}, {"image": b"x"}, "filter: Input should be a valid dictionary"),
    ],
)
def test_impossible_form_fields_are_named(
    app: FastAPI, form: dict[str, str], files: dict[str, bytes], says: str
) -> None:
    response = post(app, data=form, files=files)
    assert response.status_code == 422
    assert says in error_of(response)["message"]


def test_an_image_field_that_is_no_file(app: FastAPI) -> None:
    response = post(app, files={"image": (None, "AAAA")})
    assert response.status_code == 422
    assert "image: expected a file" in error_of(response)["message"]


@pytest.mark.parametrize(
    "content_type", ["multipart/form-data", "multipart/form-data; boundary=other"]
)
def test_a_malformed_form(app: FastAPI, content_type: str) -> None:
    response = post(app, content=b"--x\r\nbroken", headers={"content-type": content_type})
    assert response.status_code == 422
    assert "error" in response.json()


def test_more_than_one_file(app: FastAPI) -> None:
    response = post(app, files=[("image", b"a"), ("image", b"b"), ("image", b"c")])
    assert response.status_code == 422
    assert "Too many files" in error_of(response)["message"]


@pytest.mark.parametrize(
    "content_type", ["text/plain", "image/jpeg", "application/x-www-form-urlencoded", ""]
)
def test_neither_json_nor_multipart(app: FastAPI, content_type: str) -> None:
    response = post(app, content=b"text=a", headers={"content-type": content_type})
    assert response.status_code == 415
    assert error_of(response)["code"] == "unsupported_content_type"
    assert "application/json" in error_of(response)["message"]


def test_a_body_that_says_it_is_too_large_is_refused(app: FastAPI) -> None:
    response = post(app, json={"text": "a" * LIMIT_BYTES})
    assert response.status_code == 413
    assert error_of(response)["code"] == "body_too_large"
    assert str(LIMIT_BYTES) in error_of(response)["message"]


def test_a_chunked_body_is_refused_while_it_is_read_and_never_kept(app: FastAPI) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 1000 * LIMIT_BYTES:
            sent += LIMIT_BYTES // 10
            yield b" " * (LIMIT_BYTES // 10)

    response = post(app, content=chunks(), headers={"content-type": "application/json"})
    assert response.status_code == 413
    # What comes after the limit is thrown away for a while, so that the client sees the answer.
    assert sent < 20 * LIMIT_BYTES
