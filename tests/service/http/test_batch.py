"""Many searches in one request."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
from PIL import Image

from aladin_index.search.results import TookMs
from aladin_network.errors import (
    AladinError,
    EngineUnavailableError,
    IndexNotReadyError,
    OverloadedError,
)
from aladin_service.http import turns
from aladin_service.http.app import create_app
from aladin_service.http.routes import batch as batches
from aladin_service.http.routes import search as searches
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, QueueName, SearchJob, TermsQuery, TextQuery
from aladin_service.settings import ServiceSettings
from aladin_service.work.health import WorkersHealth
from aladin_service.work.worker import Job

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


class Gate:
    """Workers that answer a query when the test says so, from a line that has an end."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.most = 0
        self.cancelled: list[str] = []
        self.open = False
        self.refuses: AladinError | None = None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def call(self, job: Job[Any]) -> Any:
        raise NotImplementedError

    def health(self) -> WorkersHealth:
        return WorkersHealth(wanted=1, alive=1, generation=1)

    def refusal(self, queue: QueueName) -> OverloadedError | None:
        del queue
        return OverloadedError(0.001) if len(self.waiting) >= self.line else None

    async def search(self, job: SearchJob) -> Answered:
        if isinstance(job.query, TextQuery):
            words = job.query.text
        else:
            assert isinstance(job.query, TermsQuery)
            first = job.query.terms[0].query
            assert isinstance(first, TextQuery)
            words = first.text
        if self.refuses is not None:
            raise self.refuses
        refusal = self.refusal("text")
        if refusal is not None:
            raise refusal
        self.waiting[words] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.waiting))
        try:
            if not self.open:
                await self.waiting[words]
        except asyncio.CancelledError:
            self.cancelled.append(words)
            raise
        finally:
            del self.waiting[words]
        took_ms = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
        return Answered(json.dumps({"said": words}).encode(), 1, (), took_ms)

    async def until(self, count: int) -> None:
        """Wait until so many queries wait."""
        async with asyncio.timeout(10):
            while len(self.waiting) != count:
                await asyncio.sleep(0)

    def let(self, *words: str) -> None:
        for each in words:
            self.waiting[each].set_result(None)


@asynccontextmanager
async def gated(line: int, **limits: float) -> AsyncGenerator[tuple[Gate, httpx.AsyncClient]]:
    gate, settings = Gate(line), ServiceSettings(**limits)  # pyright: ignore[reportArgumentType]
    app = create_app(gate, settings, Metrics())
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield gate, client


def batch(*words: str) -> dict[str, Any]:
    return {"queries": [{"target": "images", "text": each} for each in words]}


async def test_each_gets_what_it_would_get_alone(
    service: Service, query_photo: Image.Image, encoded: Callable[..., bytes]
) -> None:
    photo = base64.b64encode(encoded(query_photo)).decode()
    queries: list[dict[str, Any]] = [
        {"target": "images", "text": "a red dog", "k": 2, "explain": True},
        {"target": "texts", "image": photo, "k": 3, "fusion": 1.0},
        {"target": "images", "id": "plain", "filter": {"tags": "even"}},
        {"target": "texts", "text": "a man", "rerank": False, "offset": 2},
        {"target": "images", "id": "nobody"},
        {"target": "images", "text": " "},
        {"target": "images", "image": "AAAA"},
        {"target": "texts", "text": "a", "id": "b"},
        {"target": "images", "text": "a", "k": 0},
        {"target": "images", "text": "a", "k": "1"},
        {"target": "images", "text": "a", "colour": "red"},
    ]
    async with service() as client:
        together = await client.post("/v1/search/batch", json={"queries": queries})
        assert together.status_code == 200
        answers = together.json()["answers"]
        assert together.json()["took_ms"] > 0
        assert len(answers) == len(queries)
        for query, answer in zip(queries, answers, strict=True):
            fields = {name: value for name, value in query.items() if name != "target"}
            alone = await client.post(f"/v1/search/{query['target']}", json=fields)
            expected = alone.json()
            if alone.status_code == 200:
                assert answer.pop("took_ms").keys() == expected.pop("took_ms").keys()
            else:
                expected["status"] = alone.status_code
                expected["error"]["request_id"] = together.headers["x-request-id"]
            assert answer == expected
    assert [answer.get("status", 200) for answer in answers] == [
        *(200, 200, 200, 200),
        *(404, 422, 415, 422, 422, 422, 422),
    ]


async def test_the_log_tells_the_batch_s_own_error_and_how_many_of_its_searches_failed(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "service.access")
    async with service() as client:
        await client.post("/v1/search/batch", json=batch("a dog", " ", "a cat", ""))
        await client.post("/v1/search/batch", json=batch())
    told = [vars(line)["fields"] for line in caplog.records if line.name == "service.access"]
    picked = ("status", "error", "searches", "failed_parts")
    assert [{name: line[name] for name in picked if name in line} for line in told] == [
        {"status": 200, "searches": 2, "failed_parts": 2},
        {"status": 422, "error": "invalid_field"},
    ]


async def test_an_invalid_search_of_a_batch_is_an_error_of_its_own(service: Service) -> None:
    queries = [{"text": "a dog"}, 3, {"target": "sounds", "text": "a dog"}]
    async with service() as client:
        response = await client.post("/v1/search/batch", json={"queries": queries})
        answers = response.json()["answers"]
    assert [answer["status"] for answer in answers] == [422, 422, 422]
    assert "target: Field required" in answers[0]["error"]["message"]
    assert "target" in answers[2]["error"]["message"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "queries: expected a list"),
        ({"queries": {}}, "queries: expected a list"),
        ({"queries": []}, "queries: expected 1 to 3, got 0"),
        (batch("a", "b", "c", "d"), "queries: expected 1 to 3, got 4"),
        ({**batch("a"), "k": 3}, "k: unknown field"),
        ([], "Input should be an object"),
    ],
)
async def test_an_invalid_batch_is_refused_as_a_whole(
    service: Service, body: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_QUERIES", 3)
    async with service() as client:
        response = await client.post("/v1/search/batch", json=body)
    assert response.status_code == 422
    assert response.json()["error"]["message"] == says


async def test_a_batch_is_json(service: Service) -> None:
    async with service() as client:
        form = await client.post("/v1/search/batch", data={"queries": "[]"})
    assert form.status_code == 415
    assert "application/json" in form.json()["error"]["message"]


async def test_a_batch_that_is_larger_than_the_line_takes_places_as_they_come_free() -> None:
    words = [f"w{number}" for number in range(9)]
    async with gated(line=2, max_batch=4) as (gate, client):
        request = asyncio.create_task(client.post("/v1/search/batch", json=batch(*words)))
        await gate.until(2)
        gate.open = True
        gate.let("w1", "w0")  # the answers come in another order than the queries
        response = await request
    answers = response.json()["answers"]
    assert [answer["said"] for answer in answers] == words
    assert gate.most == 2


async def test_a_batch_that_gets_no_further_refuses_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.05)
    async with gated(line=1, max_batch=1) as (gate, client):
        request = asyncio.create_task(client.post("/v1/search/batch", json=batch("a", "b", "c")))
        await gate.until(1)
        gate.line = 0
        gate.let("a")
        answers = (await request).json()["answers"]
    assert answers[0] == {"said": "a"}
    assert [answer["status"] for answer in answers[1:]] == [429, 429]


async def test_all_batches_together_hold_no_more_places_than_one_worker_takes() -> None:
    async with gated(line=100, max_batch=3) as (gate, client):
        first = asyncio.create_task(client.post("/v1/search/batch", json=batch(*"abcdefgh")))
        await gate.until(3)
        second = asyncio.create_task(client.post("/v1/search/batch", json=batch(*"ABCD")))
        alone = asyncio.create_task(client.post("/v1/search/images", json={"text": "alone"}))
        await gate.until(4)
        assert set(gate.waiting) == {"a", "b", "c", "alone"}
        gate.let("a", "alone")
        assert (await alone).status_code == 200
        gate.open = True
        gate.let(*gate.waiting)
        for request, words in ((first, "abcdefgh"), (second, "ABCD")):
            answers = (await request).json()["answers"]
            assert [answer["said"] for answer in answers] == list(words)


def costly(kind: str, words: str) -> dict[str, Any]:
    """A search of several terms, of one that is compared with all items, or of both."""
    terms = [{"text": words}, *[{"text": "a dog"}] * 3]
    if kind == "all":
        return {"target": "images", "text": words, "candidates": "exhaustive"}
    more = {"candidates": "exhaustive"} if kind == "both" else {}
    return {"target": "images", "all": terms, "not": [{"text": "a car"}] * 2} | more


@pytest.mark.parametrize(("kind", "together"), [("all", 4), ("terms", 2), ("both", 1)])
async def test_costly_searches_of_a_batch_take_more_places(kind: str, together: int) -> None:
    words = [f"w{number}" for number in range(8)]
    queries = [costly(kind, each) for each in words]
    async with gated(line=100, max_batch=16) as (gate, client):
        request = asyncio.create_task(client.post("/v1/search/batch", json={"queries": queries}))
        await gate.until(together)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(gate.waiting) == together
        other = asyncio.create_task(client.post("/v1/search/batch", json=batch(*"abc")))
        for _ in range(50):
            await asyncio.sleep(0)
        assert "a" not in gate.waiting  # it has its turn when places come free
        gate.open = True
        gate.let(*gate.waiting)
        answers = (await request).json()["answers"]
        assert (await other).status_code == 200
    assert [answer["said"] for answer in answers] == words


async def test_a_client_that_hangs_up_gives_its_places_back() -> None:
    async with gated(line=100, max_batch=16) as (gate, client):
        queries = {"queries": [costly("both", each) for each in "abc"]}
        first = asyncio.create_task(client.post("/v1/search/batch", json=queries))
        await gate.until(1)
        second = asyncio.create_task(client.post("/v1/search/batch", json=queries))
        for _ in range(50):
            await asyncio.sleep(0)
        for each in (second, first):
            each.cancel()
            with pytest.raises(asyncio.CancelledError):
                await each
        gate.open = True
        assert (await client.post("/v1/search/batch", json=queries)).status_code == 200


@pytest.mark.parametrize(("kind", "cost"), [("all", 4), ("terms", 6), ("both", 24)])
async def test_a_costly_search_costs_its_client_the_same_alone_and_in_a_batch(
    kind: str, cost: int
) -> None:
    search = costly(kind, "a")
    target = search.pop("target")
    for path, body in (
        (f"/v1/search/{target}", search),
        ("/v1/search/batch", {"queries": [search | {"target": target}]}),
    ):
        limits = {"anonymous_requests_per_s": 1e-6, "anonymous_burst": cost + 1}
        async with gated(line=100, **limits) as (gate, client):
            gate.open = True
            assert (await client.post(path, json=body)).status_code == 200
            once, again = [
                (await client.post("/v1/search/images", json={"text": "a"})).status_code
                for _ in range(2)
            ]
        assert (once, again) == (200, 429), path


async def test_answers_of_a_batch_end_at_the_largest_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [letter * 100 for letter in "abcdefgh"]
    monkeypatch.setattr(batches, "MAX_ANSWER_BYTES", 350)
    async with gated(line=100, max_batch=1) as (gate, client):
        gate.open = True
        answers = (await client.post("/v1/search/batch", json=batch(*words))).json()["answers"]
    assert [answer.get("said") for answer in answers] == [*words[:3], *[None] * 5]
    for answer in answers[3:]:
        assert (answer["status"], answer["error"]["code"]) == (413, "answer_too_large")


async def test_an_answer_of_one_search_has_a_largest_size(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "MAX_ANSWER_BYTES", 2000)
    async with service() as client:
        small = await client.post("/v1/search/images", json={"text": "a dog", "k": 1})
        large = await client.post("/v1/search/images", json={"text": "a dog", "k": 6})
    assert small.status_code == 200
    assert len(small.content) < 2000 < 6 * len(small.content)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "answer_too_large")


async def test_more_batches_than_there_is_room_for_are_refused() -> None:
    async with gated(line=100, max_batch=1) as (gate, client):
        requests = [
            asyncio.create_task(client.post("/v1/search/batch", json=batch(str(number))))
            for number in range(18)
        ]
        done, _ = await asyncio.wait(requests, timeout=10, return_when="FIRST_COMPLETED")
        while len(done) < 2:
            done, _ = await asyncio.wait(requests, timeout=0.01)
        assert {(await request).status_code for request in done} == {429}
        gate.open = True
        gate.let(*gate.waiting)
        statuses = [(await request).status_code for request in requests]
    assert sorted(statuses) == [200] * 16 + [429] * 2


async def test_every_query_of_a_batch_counts_for_its_clients_rate() -> None:
    async with gated(line=100, anonymous_requests_per_s=1e-6, anonymous_burst=5) as (gate, client):
        gate.open = True
        first = await client.post("/v1/search/batch", json=batch("a", "b", "c"))
        second = await client.post("/v1/search/batch", json=batch("a", "b", "c"))
        third = await client.post("/v1/search/images", json={"text": "a"})
        assert [first.status_code, second.status_code, third.status_code] == [200, 429, 200]
        assert second.json()["error"]["code"] == "rate_limited"


async def test_a_batch_of_which_nothing_can_be_taken_is_refused_at_once() -> None:
    async with gated(line=0) as (_, client):
        response = await client.post("/v1/search/batch", json=batch("a", "b"))
        assert response.status_code == 429
        assert response.headers["retry-after"] == "1"
        assert response.json()["error"]["code"] == "overloaded"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IndexNotReadyError("no index is live yet"), "index_not_ready"),
        (EngineUnavailableError("milvus", "no answer"), "engine_unavailable"),
    ],
)
async def test_without_an_index_the_whole_batch_is_told_so(error: AladinError, code: str) -> None:
    async with gated(line=9) as (gate, client):
        gate.refuses = error
        response = await client.post("/v1/search/batch", json=batch("a", "b"))
        assert response.status_code == 503
        assert response.json()["error"]["code"] == code


async def test_an_unforeseen_error_fails_one_search_and_shows_no_internals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with gated(line=9) as (gate, client):
        request = asyncio.create_task(client.post("/v1/search/batch", json=batch("a", "b")))
        await gate.until(2)
        gate.waiting["a"].set_exception(ZeroDivisionError("secret"))
        gate.let("b")
        failed, answered = (await request).json()["answers"]
    assert answered == {"said": "b"}
    assert (failed["status"], failed["error"]["code"]) == (500, "internal_error")
    assert "secret" not in json.dumps(failed)
    assert "secret" in caplog.text


async def test_a_client_that_hangs_up_withdraws_all() -> None:
    gate = Gate(9)
    app = create_app(gate, ServiceSettings(max_batch=2), Metrics())
    body = json.dumps(batch("a", "b", "c")).encode()
    hangs_up = asyncio.Event()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await hangs_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/search/batch",
        "raw_path": b"/v1/search/batch",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    async with app.router.lifespan_context(app):
        request = asyncio.create_task(app(scope, receive, send))  # pyright: ignore
        await gate.until(2)
        hangs_up.set()
        async with asyncio.timeout(10):
            await request
    assert sorted(gate.cancelled) == ["a", "b"]
    assert not gate.waiting
