"""What /metrics tells after requests that are known, and of a state that is known."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aladin_network.errors import IndexNotReadyError, OverloadedError
from aladin_service.http import state_metrics
from aladin_service.http.state_metrics import StateMetrics, StateNow, render_state
from aladin_service.work.health import WorkersHealth

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

HEALTH = WorkersHealth(wanted=3, alive=2, generation=5, refused="why")


def read(text: str) -> Samples:
    """Return all samples by their name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """Return one sample; None where there is none."""
    return samples.get((name, frozenset(labels.items())))


async def test_known_requests_are_counted_exactly(service: Service) -> None:
    async with service() as client:
        for text in ("a dog", "a cat", "a dog"):
            body = {"text": text}
            assert (await client.post("/v1/search/images", json=body)).status_code == 200
        assert (await client.post("/v1/search/texts", json={"id": "plain"})).status_code == 200
        assert (await client.post("/v1/search/texts", json={"text": ""})).status_code == 422
        assert (await client.get("/v1/items/images/nowhere")).status_code == 404
        answer = await client.get("/metrics")
        samples = read(answer.text)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    requests = "aladin_http_requests_total"
    images = {"method": "POST", "route": "/v1/search/images"}
    texts = {"method": "POST", "route": "/v1/search/texts"}
    items = {"method": "GET", "route": "/v1/items/{target}/{item_id}"}
    assert value(samples, requests, **images, status="200") == 3
    assert value(samples, requests, **texts, status="200") == 1
    assert value(samples, requests, **texts, status="422") == 1
    assert value(samples, requests, **items, status="404") == 1
    assert value(samples, "aladin_http_request_duration_seconds_count", **texts) == 2
    for stage in ("queue", "decode", "encode", "retrieve", "rerank", "total"):
        name = "aladin_search_stage_duration_seconds_count"
        assert value(samples, name, stage=stage) == 4
    # Two texts were new, one was remembered; an item needs no encoding.
    assert value(samples, "aladin_encoding_cache_lookups_total", result="miss") == 2
    assert value(samples, "aladin_encoding_cache_lookups_total", result="hit") == 1
    # The empty text was refused by a worker, so it had waited for one.
    assert value(samples, "aladin_batch_size_count", lane="text") == 4
    assert value(samples, "aladin_batch_size_sum", lane="text") == 4
    assert value(samples, "aladin_batch_size_count", lane="encoded") == 1
    assert value(samples, "aladin_queue_depth", lane="text") == 0


async def test_the_stages_add_up_to_no_more_than_the_whole(service: Service) -> None:
    async with service() as client:
        for number in range(5):
            await client.post("/v1/search/images", json={"text": f"dog {number}"})
        samples = read((await client.get("/metrics")).text)
    name = "aladin_search_stage_duration_seconds_sum"
    stages = ("queue", "decode", "encode", "retrieve", "rerank")
    parts = [value(samples, name, stage=each) or 0.0 for each in stages]
    total = value(samples, name, stage="total")
    whole = value(
        samples,
        "aladin_http_request_duration_seconds_sum",
        method="POST",
        route="/v1/search/images",
    )
    assert total is not None
    assert whole is not None
    assert 0 < sum(parts) <= total <= whole


async def test_the_index_is_described_as_it_is_now(
    service: Service, index_folder: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    shutil.copytree(index_folder, index)
    generation = index / "generations" / "000001"
    async with service(index=index) as client:
        before = read((await client.get("/metrics")).text)
        item = {"items": [{"id": "new", "text": "a new caption"}]}
        added = await client.post("/v1/items/texts", json=item)
        after = read((await client.get("/metrics")).text)
    assert added.status_code < 300
    assert value(before, "aladin_ready") == 1
    assert value(before, "aladin_index_generation") == 1
    assert value(before, "aladin_index_items", collection="images") == 6
    assert value(before, "aladin_index_items", collection="texts") == 12
    assert value(after, "aladin_index_items", collection="texts") == 13
    for part, folder in {
        "images": generation / "images",
        "texts": generation / "texts",
        "model": index / "model",
    }.items():
        on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        assert value(before, "aladin_index_size_bytes", part=part) == on_disk


async def test_without_an_index_it_is_not_ready_and_has_no_generation(
    service: Service, tmp_path: Path
) -> None:
    async with service(index=tmp_path) as client:
        samples = read((await client.get("/metrics")).text)
    assert value(samples, "aladin_ready") == 0
    assert not {name for name, _ in samples} & {"aladin_index_generation", "aladin_index_items"}


def test_a_state_is_written_as_it_is() -> None:
    health = WorkersHealth(wanted=3, alive=2, generation=5, refused="why", pids={1: os.getpid()})
    text = render_state(StateNow(False, health, 128, None)).decode()
    samples = read(text)
    assert value(samples, "aladin_ready") == 0
    assert value(samples, "aladin_queue_limit") == 128
    assert value(samples, "aladin_workers_wanted") == 3
    assert value(samples, "aladin_workers_alive") == 2
    assert value(samples, "aladin_index_generation") == 5
    assert value(samples, "aladin_index_generation_refused") == 1
    processes = {
        dict(labels)["process"] for name, labels in samples if name == "aladin_process_memory_bytes"
    }
    assert processes == {"front", "worker-1"}
    assert "why" not in text
    (build,) = [dict(labels) for name, labels in samples if name == "aladin_build_info"]
    assert set(build) == {"version", "python", "torch", "faiss"}


class BusyWorkers:
    """Workers that answer the first call, and then do what a test says."""

    def __init__(self, first: object) -> None:
        self._answers: list[object] = [first]
        self.error: Exception | None = None

    async def call(self, job: object) -> object:
        """Answer, fail, or never come to it."""
        del job
        if self._answers:
            return self._answers.pop()
        if self.error is not None:
            raise self.error
        return await asyncio.Event().wait()

    def health(self) -> WorkersHealth:
        """Return what they are."""
        return HEALTH


@pytest.mark.parametrize("error", [None, OverloadedError(1.0)])
async def test_a_scrape_waits_for_no_worker(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_metrics, "_DESCRIBE_S", 0.01)
    workers, metrics = BusyWorkers(first=None), StateMetrics()
    described: list[object] = []

    def keep(now: StateNow) -> bytes:
        described.append(now.live)
        return b""

    monkeypatch.setattr(state_metrics, "render_state", keep)
    workers = BusyWorkers(first="the index")
    workers.error = error
    for _ in range(2):
        await metrics.render(workers, max_waiting=1, draining=False)  # pyright: ignore[reportArgumentType]
    assert described == ["the index", "the index"]  # what was known before
    workers.error = IndexNotReadyError("gone")
    await metrics.render(workers, max_waiting=1, draining=False)  # pyright: ignore[reportArgumentType]
    assert described[-1] is None
