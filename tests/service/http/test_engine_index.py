"""A service of an index in an engine: its answers are those of files, and the engine may go."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aladin_index.engines.milvus import EngineQuery, FoundItem
from tests.index.engines.memory_engine import MemoryEngine
from tests.service.engine_world import EngineWorld, SlowEngine
from tests.service.http.conftest import told

pytestmark = pytest.mark.anyio

_LONG_S = 20.0


@pytest.fixture
async def engine(world: EngineWorld) -> AsyncGenerator[httpx.AsyncClient]:
    """Of a service of it."""
    async with world.service() as client:
        yield client


async def search(client: httpx.AsyncClient, target: str = "images", **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/v1/search/{target}", json={"text": "a red dog", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until_ready(client: httpx.AsyncClient, status: int) -> httpx.Response:
    async with asyncio.timeout(_LONG_S):
        while (answer := await client.get("/readyz")).status_code != status:
            await asyncio.sleep(0.005)
    return answer


def metric(text: str, name: str, **labels: str) -> float | None:
    """Return one sample; None where there is none."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if (sample.name, sample.labels) == (name, labels):
                return sample.value
    return None


def assert_alike(actual: Any, expected: Any) -> None:
    """Compare two answers: numbers to 1e-5, the rest exactly; times are their own."""
    if isinstance(expected, dict):
        assert set(actual) == set(expected)
        for name in expected.keys() - {"took_ms"}:
            assert_alike(actual[name], expected[name])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected, strict=True):
            assert_alike(ours, theirs)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-5)
    else:
        assert actual == expected


async def test_while_the_engine_is_away_all_is_refused_at_once_and_said_when_to_come_again(
    engine: httpx.AsyncClient, world: EngineWorld
) -> None:
    await search(engine)
    world.server.down = {"*"}
    ready = await until_ready(engine, 503)
    answers = [
        await engine.post("/v1/search/images", json={"text": "a cat"}),
        await engine.post("/v1/search/texts", json={"id": "plain"}),
        await engine.post(
            "/v1/search/batch", json={"queries": [{"target": "images", "text": "a cat"}] * 3}
        ),
        await engine.get("/v1/items/images/plain"),
        await engine.get("/v1/images/plain"),
        await engine.get("/v1/index"),
        await engine.post("/v1/items/texts", json={"items": [{"id": "a", "text": "a"}]}),
        await engine.delete("/v1/items/texts/plain%230"),
    ]
    for answer in (ready, *answers):
        assert answer.status_code == 503, answer.text
        assert told(answer)[1] == "engine_unavailable"
        assert "memory" not in told(answer)[2]  # nor anything else of where it is
        assert answer.headers["Retry-After"] == "1"
    assert (await engine.get("/healthz")).status_code == 200
    world.server.down = set()
    await until_ready(engine, 200)
    assert (await search(engine))["degraded"] == []


async def test_without_tokens_the_first_stage_orders_and_the_answer_says_so(
    engine: httpx.AsyncClient,
    world: EngineWorld,
    photo: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = MemoryEngine.search

    def search(store: MemoryEngine, query: EngineQuery) -> list[FoundItem]:
        """Find items without their tokens, as an engine does whose messages are full."""
        return found(store, replace(query, with_tokens=False))

    monkeypatch.setattr(MemoryEngine, "search", search)

    async def ask(**fields: str) -> dict[str, Any]:
        answer = await engine.post("/v1/search/texts", files={"image": photo}, data=fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    plain, whole = await ask(rerank="false"), await ask()
    world.server.down = {"fetch_tokens"}
    degraded = [await ask() for _ in range(5)]
    assert (whole["degraded"], whole["reranked"]) == ([], True)
    for answer in degraded:  # the engine is up, so that none of them is refused
        assert (answer["degraded"], answer["reranked"]) == (["rerank_unavailable"], False)
        assert [hit["id"] for hit in answer["hits"]] == [hit["id"] for hit in plain["hits"]]
    text = (await engine.get("/metrics")).text
    assert metric(text, "aladin_degraded_answers_total", reason="rerank_unavailable") == 5
    assert metric(text, "aladin_engine_up") == 1
    world.server.down = set()
    assert_alike(await ask(), whole)


async def test_what_the_engine_costs_is_counted(
    engine: httpx.AsyncClient, world: EngineWorld
) -> None:
    for _ in range(3):
        await search(engine)
    text = (await engine.get("/metrics")).text
    assert metric(text, "aladin_engine_up") == 1
    name = "aladin_engine_call_duration_seconds_count"
    # Three of requests, and one of each collection when the generation was tried.
    assert metric(text, name, operation="search") == 5
    assert metric(text, "aladin_engine_errors_total", reason="unavailable") == 0
    assert metric(text, "aladin_index_items", collection="texts") == 12
    world.server.down = {"search"}
    for _ in range(5):
        await engine.post("/v1/search/images", json={"text": "a cat"})
    text = (await engine.get("/metrics")).text
    assert metric(text, "aladin_engine_errors_total", reason="unavailable") == 2
    assert metric(text, "aladin_engine_up") == 0
    assert metric(text, "aladin_ready") == 0


async def test_a_hanging_engine_does_not_keep_requests_waiting_in_a_line(
    world: EngineWorld,
) -> None:
    slow = SlowEngine(world.server, timeout_s=0.2)
    settings = {"query_threads": 1, "max_batch": 4, "max_wait_ms": 60_000}  # all are admitted
    async with world.service(slow, **settings) as engine:
        await search(engine)
        slow.hangs.set()
        started = time.monotonic()
        answers = await asyncio.gather(
            *(
                engine.post("/v1/search/images", json={"text": f"dog number {number}"})
                for number in range(24)
            )
        )
        took_s = time.monotonic() - started
        assert {answer.status_code for answer in answers} == {503}
        # One thread, and 24 times 0.2 s if each had waited for its own answer.
        assert took_s < 24 * 0.2 / 2
        text = (await engine.get("/metrics")).text
        assert metric(text, "aladin_engine_errors_total", reason="unavailable") == 2
        slow.hangs.clear()
        await until_ready(engine, 200)
        assert len((await search(engine))["hits"]) == 6


async def test_documents_items_photos_and_the_description_are_those_of_files(
    client: httpx.AsyncClient, pushed: EngineWorld, photo: bytes, image_ids: list[str]
) -> None:
    image = {"image": base64.b64encode(photo).decode()}
    documents = [*({"id": each} for each in image_ids), image, {"id": "plain#0"}, "a dog"]
    asked: list[tuple[str, dict[str, Any] | None]] = [
        ("rerank", {"query": "a red dog", "documents": documents}),
        ("rerank", {"query": {"id": "plain"}, "documents": documents}),
        ("embeddings", {"input": ["a dog"]}),
        ("items/images/plain", None),
        ("items/texts/plain%230", None),
        ("index", None),
    ]
    async with pushed.service() as engine:
        for path, body in asked:
            method = "GET" if body is None else "POST"
            actual, expected = [
                (await each.request(method, f"/v1/{path}", json=body)).raise_for_status().json()
                for each in (engine, client)
            ]
            if path == "index":
                # Files say what a build left out and when they changed; a push leaves both.
                assert (actual.pop("changed_at"), actual.pop("skipped")) == (None, None)
                for collection in ("images", "texts"):
                    # How the engine searches is its own; it cannot compare with all items.
                    kept = [each[collection].pop("takes_all") for each in (actual, expected)]
                    assert kept == [False, True]
                    del actual[collection]["ann"], expected[collection]["ann"]
                expected = {name: expected[name] for name in actual}
            if path == "rerank":
                actual, expected = actual["results"], expected["results"]
            assert_alike(actual, expected)
        photo_of = await engine.get("/v1/images/plain?size=16")
        gone = await engine.get("/v1/items/images/nobody")
        models = (await engine.get("/v1/models")).json()["data"]
    assert [each["dimensions"] for each in models] == [16, 16]
    assert photo_of.headers["content-type"] == "image/jpeg"
    assert told(gone)[:2] == (404, "unknown_id")
