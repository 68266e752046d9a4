"""What is kept of every request: its id, its log line, its counts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from aladin_index.search.results import TookMs
from aladin_network.errors import OverloadedError
from aladin_service.http.error_responses import install_error_handlers
from aladin_service.http.middleware import RequestContext
from aladin_service.observe.logs import (
    CURRENT_REQUEST,
    LogSetup,
    SearchRecord,
    StderrHandler,
    log_to_stderr,
)
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered
from tests.service.http.conftest import http_scope
from tests.service.searching import search_job

SECRETS = ["Bearer-s3cret", "k3y-s3cret", "a private query", "pa55word"]
ANSWERED = Answered(
    body=b"{}",
    generation=7,
    degraded=("rerank_timeout",),
    took_ms=TookMs(decode=0, encode=1, retrieve=1, rerank=0, total=3),
    batch=4,
)


class NamedKey(NamedTuple):
    """As the access control leaves it for the log."""

    name: str


class App(NamedTuple):
    """A small application, and what it counts."""

    app: FastAPI
    metrics: Metrics

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send one request."""

        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=("192.0.2.7", 5000))
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                answer = await client.request(method, path, **request)
            assert CURRENT_REQUEST.get() is None  # nothing of it is left to what comes next
            return answer

        return asyncio.run(run())

    def count(self, **labels: str) -> float | None:
        """Return how many requests were counted under some labels."""
        return self.metrics.registry.get_sample_value("aladin_http_requests_total", labels)


@pytest.fixture
def small() -> App:
    """An application with a route for each thing that can happen."""
    app, metrics = FastAPI(), Metrics()
    install_error_handlers(app)
    app.add_middleware(RequestContext, metrics=metrics)
    router = APIRouter(prefix="/v1")

    @router.post("/search")
    async def search(request: Request) -> PlainTextResponse:
        request.state.key = NamedKey("alice")
        record = CURRENT_REQUEST.get()
        assert record is not None
        job = search_job((await request.json())["text"])
        record.searches.append(SearchRecord("text", job, ANSWERED))
        logging.getLogger("service.test").info("searching")
        return PlainTextResponse("twelve bytes")

    @router.get("/items/{item_id:path}")
    async def item(item_id: str) -> dict[str, str]:
        return {"id": item_id}

    def failing(name: str, error: Exception) -> None:
        @router.get(f"/{name}")
        async def fail() -> None:
            raise error

    failing("full", OverloadedError(1.0))
    failing("bug", RuntimeError("internals"))
    failing("gone", ClientDisconnect())
    app.include_router(router)

    @app.get("/readyz")
    async def readyz() -> None:
        return None

    return App(app, metrics)


Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """Reads the JSON lines that were logged since the last call."""
    root = logging.getLogger()
    level = root.level
    log_to_stderr(LogSetup(format="json"))
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    logging.captureWarnings(False)
    root.handlers = [each for each in root.handlers if not isinstance(each, StderrHandler)]
    root.setLevel(level)


def test_a_search_is_one_line_that_tells_how_it_was_answered(small: App, lines: Lines) -> None:
    answer = small.send("POST", "/v1/search", json={"text": "a dog"})
    inner, access = lines()
    assert inner["message"] == "searching"
    assert inner["request_id"] == access["request_id"] == answer.headers["X-Request-ID"]
    milliseconds = access.pop("ms")
    assert 0 < milliseconds < 10_000
    assert access.pop("message") == f"POST /v1/search 200 {milliseconds:.1f} ms"
    for name in ("time", "pid", "request_id"):
        del access[name]
    assert access == {
        **{"level": "INFO", "logger": "service.access"},
        **{"method": "POST", "route": "/v1/search", "path": "/v1/search", "status": 200},
        **{"bytes": 12, "request_bytes": 16, "client": "192.0.2.7", "key": "alice"},
        **{"generation": 7, "lane": "text", "batch": 4, "degraded": ["rerank_timeout"]},
    }


def test_no_line_holds_a_key_or_what_was_searched_for(small: App, lines: Lines) -> None:
    headers = {"Authorization": "Bearer Bearer-s3cret", "X-API-Key": "k3y-s3cret"}
    body = {"text": "a private query"}
    small.send("POST", "/v1/search?token=pa55word", json=body, headers=headers)
    small.send("GET", "/v1/bug?token=pa55word", headers=headers)
    small.send("GET", "/v1/nothing?token=pa55word", headers=headers)
    written = json.dumps(lines())
    assert written.count("request_id") == 5
    assert [secret in written for secret in SECRETS] == [False] * 4


def test_an_id_that_was_given_is_kept_if_it_is_safe(small: App, lines: Lines) -> None:
    ids = ["trace-7.a_B", "x" * 65, "<b>", "two words"]
    given = [small.send("GET", "/readyz", headers={"X-Request-ID": each}) for each in ids]
    first, *made = [each.headers.get_list("X-Request-ID") for each in given]
    assert first == [ids[0]]
    assert len({each for (each,) in made} - {*ids}) == 3
    assert lines() == []  # probes that are answered are nothing to read of


def test_requests_are_counted_by_the_template_of_their_route(small: App) -> None:
    for item_id in ("a", "b/c", "d%20e"):
        small.send("GET", f"/v1/items/{item_id}")
    small.send("GET", "/nothing/here")
    small.send("GET", "/nothing/there")
    small.send("POST", "/v1/items/a")
    assert small.count(method="GET", route="/v1/items/{item_id}", status="200") == 3
    assert small.count(method="GET", route="other", status="404") == 2
    assert small.count(method="POST", route="/v1/items/{item_id}", status="405") == 1


def test_failures_are_told_and_counted_by_their_reason(small: App, lines: Lines) -> None:
    full = small.send("GET", "/v1/full")
    assert (full.status_code, lines()[-1]["error"]) == (429, "overloaded")
    rejected = {"reason": "overloaded"}
    registry = small.metrics.registry
    assert registry.get_sample_value("aladin_rejected_requests_total", rejected) == 1
    assert small.count(method="GET", route="/v1/full", status="429") == 1
    bug = small.send("GET", "/v1/bug")
    failed, access = lines()
    ids = {bug.json()["error"]["request_id"], failed["request_id"], access["request_id"]}
    assert (len(ids), failed["level"]) == (1, "ERROR")
    assert failed["exception"].endswith("RuntimeError: internals")
    assert (access["status"], access["error"]) == (500, "internal_error")
    assert small.count(method="GET", route="/v1/bug", status="500") == 1


def test_an_error_of_a_middleware_that_was_foreseen_is_no_failure(lines: Lines) -> None:
    async def full(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive, send
        raise OverloadedError(1.0)

    app = App(RequestContext(full, Metrics()), Metrics())  # pyright: ignore[reportArgumentType]
    answer = app.send("GET", "/v1/index")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    (access,) = lines()
    assert (access["route"], access["status"], access["error"]) == ("other", 429, "overloaded")


def raw(app: FastAPI, message: Message, path: str, **more: Any) -> list[Message]:
    """Hand a request on as a server does, with what is received; return what is sent."""
    sent: list[Message] = []

    async def receive() -> Message:
        return message

    async def keep(part: Message) -> None:
        sent.append(part)

    asyncio.run(app(http_scope(path, headers=[], **more), receive, keep))
    return sent


def test_a_client_that_hung_up_is_counted_as_such(small: App, lines: Lines) -> None:
    assert raw(small.app, {"type": "http.disconnect"}, "/v1/gone", client=None) == []
    (access,) = lines()
    assert (access["status"], access["client"]) == (499, None)
    assert small.count(method="GET", route="/v1/gone", status="499") == 1


@pytest.mark.parametrize(
    "path", [b"/v1/items/a%0ab", b"/v1/items/\xff\x1b[31m\n", b"/" + b"x" * 9999]
)
def test_no_path_breaks_a_line(small: App, lines: Lines, path: bytes) -> None:
    message = {"type": "http.request", "body": b"", "more_body": False}
    raw(small.app, message, "/v1/items/whatever", raw_path=path)
    (access,) = lines()
    assert access["path"].isprintable()
    assert access["path"].isascii()
    assert len(access["path"]) < 1000


@pytest.mark.anyio
async def test_lines_count_searches_and_documents_and_name_none(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "service.access")
    texts = ("a star", " ", "two men", "")
    queries = [{"target": "images", "text": text} for text in texts]
    documents = ["two men", {"id": "plain"}]
    expected: list[dict[str, Any]] = []
    for path, body, told in (
        ("search/batch", {"queries": queries}, {"searches": 2, "failed_parts": 2}),
        ("search/batch", {"queries": []}, {"error": "invalid_field"}),
        ("rerank", {"query": "a star", "documents": documents}, {"documents": 2}),
        ("rerank", {"query": "a star", "documents": []}, {"error": "invalid_field"}),
    ):
        await client.post(f"/v1/{path}", json=body)
        status = 422 if "error" in told else 200
        expected.append({"route": f"/v1/{path}", "status": status} | told)
    await asyncio.sleep(0)
    lines = [vars(line)["fields"] for line in caplog.records if line.name == "service.access"]
    counts = ("route", "status", "error", "documents", "searches", "failed_parts")
    found = [{name: line[name] for name in counts if line.get(name) is not None} for line in lines]
    assert found == expected
    assert "star" not in caplog.text
