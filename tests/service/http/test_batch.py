"""Many searches in one request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from aladin_network.errors import (
    AladinError,
    EngineUnavailableError,
    IndexNotReadyError,
    OverloadedError,
)
from aladin_service.http import turns
from aladin_service.http.app import create_app
from aladin_service.http.error_responses import HUNG_UP
from aladin_service.http.routes import batch as batches
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, QueueName, SearchJob, TermsQuery, TextQuery
from aladin_service.settings import ServiceSettings
from tests.service.http.conftest import (
    StillWorkers,
    empty_answer,
    http_scope,
    opened,
    told,
    until_hung_up,
)

pytestmark = pytest.mark.anyio


class Gate(StillWorkers):
    """Workers that answer a query when the test says so, from a line that has an end."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.most = 0
        self.cancelled: list[str] = []
        self.open = False
        self.refuses: AladinError | None = None

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
        return empty_answer(json.dumps({"said": words}).encode())

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
    async with opened(create_app(gate, settings, Metrics())) as client:
        yield gate, client


async def post(client: httpx.AsyncClient, *words: str) -> httpx.Response:
    return await client.post("/v1/search/batch", json=batch(*words))


async def settled() -> None:
    """Let all that can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


def batch(*words: str) -> dict[str, Any]:
    return {"queries": [{"target": "images", "text": each} for each in words]}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"target": "images", "text": "a red dog", "k": 2, "explain": True}, 200),
        ({"target": "texts", "text": "a man", "rerank": False, "offset": 2}, 200),
        ({"target": "images", "id": "nobody"}, 404),
        ({"target": "images", "text": " "}, 422),
        ({"target": "images", "image": "AAAA"}, 415),
        ({"target": "texts", "text": "a", "id": "b"}, 422),
        ({"target": "images", "text": "a", "k": "1"}, 422),
        ({"target": "images", "text": "a", "colour": "red"}, 422),
        ({"text": "a dog"}, 422),
        ({"target": "sounds"}, 422),
        (3, 422),
    ],
)
async def test_each_search_gets_what_it_would_get_alone(
    client: httpx.AsyncClient, query: Any, status: int
) -> None:
    queries = [query, {"target": "images", "text": "a dog"}]
    together = await client.post("/v1/search/batch", json={"queries": queries})
    assert together.json()["took_ms"] > 0
    answer, other = together.json()["answers"]
    assert other["hits"]
    if not isinstance(query, dict) or query.get("target") not in ("images", "texts"):
        assert (answer["status"], answer["error"]["code"]) == (status, "invalid_field")
        return
    fields = {name: value for name, value in query.items() if name != "target"}
    alone = await client.post(f"/v1/search/{query['target']}", json=fields)
    expected = alone.json()
    if status == 200:
        assert answer.pop("took_ms").keys() == expected.pop("took_ms").keys()
    else:
        expected["status"] = status
        expected["error"]["request_id"] = together.headers["x-request-id"]
    assert (alone.status_code, answer) == (status, expected)


async def test_a_batch_that_is_larger_than_the_line_takes_places_as_they_come_free() -> None:
    words = [f"w{number}" for number in range(9)]
    async with gated(line=2, max_batch=4) as (gate, client):
        request = asyncio.create_task(post(client, *words))
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
        request = asyncio.create_task(post(client, "a", "b", "c"))
        await gate.until(1)
        gate.line = 0
        gate.let("a")
        answers = (await request).json()["answers"]
    assert answers[0] == {"said": "a"}
    assert [answer["status"] for answer in answers[1:]] == [429, 429]


async def test_all_batches_together_hold_no_more_places_than_one_worker_takes() -> None:
    async with gated(line=100, max_batch=3) as (gate, client):
        first = asyncio.create_task(post(client, *"abcdefgh"))
        await gate.until(3)
        second = asyncio.create_task(post(client, *"ABCD"))
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
        await settled()
        assert len(gate.waiting) == together
        other = asyncio.create_task(post(client, *"abc"))
        await settled()
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
        await settled()
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
        answers = (await post(client, *words)).json()["answers"]
    assert [answer.get("said") for answer in answers] == [*words[:3], *[None] * 5]
    for answer in answers[3:]:
        assert (answer["status"], answer["error"]["code"]) == (413, "answer_too_large")


async def test_more_batches_than_there_is_room_for_are_refused() -> None:
    async with gated(line=100, max_batch=1) as (gate, client):
        requests = [asyncio.create_task(post(client, str(number))) for number in range(18)]
        done, _ = await asyncio.wait(requests, timeout=10, return_when="FIRST_COMPLETED")
        while len(done) < 2:
            done, _ = await asyncio.wait(requests, timeout=0.01)
        assert {(await request).status_code for request in done} == {429}
        gate.open = True
        gate.let(*gate.waiting)
        statuses = [(await request).status_code for request in requests]
    assert sorted(statuses) == [200] * 16 + [429] * 2


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OverloadedError(0.001), 429, "overloaded"),
        (IndexNotReadyError("no index is live yet"), 503, "index_not_ready"),
        (EngineUnavailableError("milvus", "no answer"), 503, "engine_unavailable"),
    ],
)
async def test_a_batch_of_which_nothing_can_be_taken_is_refused_as_a_whole(
    error: AladinError, status: int, code: str
) -> None:
    async with gated(line=9) as (gate, client):
        gate.refuses = error
        refused = await post(client, "a", "b")
    assert told(refused)[:2] == (status, code)
    assert refused.headers.get("retry-after", "1") == "1"


async def test_an_unforeseen_error_fails_one_search_and_shows_no_internals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with gated(line=9) as (gate, client):
        request = asyncio.create_task(post(client, "a", "b"))
        await gate.until(2)
        gate.waiting["a"].set_exception(ZeroDivisionError("secret"))
        gate.let("b")
        failed, answered = (await request).json()["answers"]
    assert answered == {"said": "b"}
    assert (failed["status"], failed["error"]["code"]) == (500, "internal_error")
    assert "secret" not in json.dumps(failed)
    assert "secret" in caplog.text


async def test_a_client_that_hangs_up_withdraws_all() -> None:
    gate, hang_up = Gate(9), asyncio.Event()
    app = create_app(gate, ServiceSettings(max_batch=2), Metrics())
    scope = http_scope("/v1/search/batch", "POST")
    async with app.router.lifespan_context(app), asyncio.timeout(10):
        body = json.dumps(batch("a", "b", "c")).encode()
        request = asyncio.create_task(until_hung_up(app, scope, hang_up, body))
        await gate.until(2)
        hang_up.set()
        assert await request <= {HUNG_UP}
    assert sorted(gate.cancelled) == ["a", "b"]
    assert not gate.waiting
