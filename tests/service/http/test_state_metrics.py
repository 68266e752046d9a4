"""What /metrics tells after requests that are known, and of a state that is known."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aladin_network.errors import IndexNotReadyError, OverloadedError
from aladin_service.http import state_metrics
from aladin_service.http.state_metrics import StateMetrics, StateNow, process_memory, render_state
from aladin_service.work.health import WorkersHealth
from benchmarks.lib.service_process import ServiceProcess
from tests.service.http.conftest import Service, StillWorkers

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

HEALTH = WorkersHealth(wanted=3, alive=2, generation=5, refused="why", pids={1: os.getpid()})


def read(text: str) -> Samples:
    """Return all samples by their name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """Return one sample; None where there is none."""
    return samples.get((f"aladin_{name}", frozenset(labels.items())))


def label(samples: Samples, name: str, of: str) -> set[str]:
    return {dict(labels)[of] for found, labels in samples if found == f"aladin_{name}"}


@pytest.mark.anyio
async def test_known_requests_are_counted_exactly(service: Service) -> None:
    async with service() as client:
        for target, body in (
            ("images", {"text": "a dog"}),
            ("images", {"text": "a cat"}),
            ("images", {"text": "a dog"}),
            ("texts", {"id": "plain"}),
            ("texts", {"text": ""}),
        ):
            await client.post(f"/v1/search/{target}", json=body)
        await client.get("/v1/items/images/nowhere")
        answer = await client.get("/metrics")
    samples = read(answer.text)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    images = {"method": "POST", "route": "/v1/search/images"}
    texts = {"method": "POST", "route": "/v1/search/texts"}
    items = {"method": "GET", "route": "/v1/items/{target}/{item_id}"}
    for labels, status, count in ((images, "200", 3), (texts, "200", 1), (texts, "422", 1)):
        assert value(samples, "http_requests_total", **labels, status=status) == count
    assert value(samples, "http_requests_total", **items, status="404") == 1
    assert value(samples, "http_request_duration_seconds_count", **texts) == 2
    stages = ("queue", "decode", "encode", "retrieve", "rerank", "total")
    name = "search_stage_duration_seconds"
    assert [value(samples, f"{name}_count", stage=stage) for stage in stages] == [4] * 6
    *parts, total = (value(samples, f"{name}_sum", stage=stage) or 0.0 for stage in stages)
    assert 0 < sum(parts) <= total
    # Two texts were new, one was remembered; an item needs no encoding.
    assert value(samples, "encoding_cache_lookups_total", result="miss") == 2
    assert value(samples, "encoding_cache_lookups_total", result="hit") == 1
    # The empty text was refused by a worker, so it had waited for one.
    assert value(samples, "batch_size_count", lane="text") == 4
    assert value(samples, "batch_size_sum", lane="text") == 4
    assert value(samples, "batch_size_count", lane="encoded") == 1
    assert value(samples, "queue_depth", lane="text") == 0


@pytest.mark.anyio
async def test_the_index_is_described_as_it_is_now(service: Service, index: Path) -> None:
    generation = index / "generations" / "000001"
    async with service(index=index) as client:
        before = read((await client.get("/metrics")).text)
        item = {"id": "new", "text": "a new caption"}
        assert (await client.post("/v1/items/texts", json=item)).status_code == 201
        after = read((await client.get("/metrics")).text)
    assert (value(before, "ready"), value(before, "index_generation")) == (1, 1)
    assert value(before, "index_items", collection="images") == 6
    assert value(before, "index_items", collection="texts") == 12
    assert value(after, "index_items", collection="texts") == 13
    for part, folder in {
        "images": generation / "images",
        "texts": generation / "texts",
        "model": index / "model",
    }.items():
        on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        assert value(before, "index_size_bytes", part=part) == on_disk


@pytest.mark.anyio
async def test_without_an_index_it_is_not_ready_and_has_no_generation(
    service: Service, tmp_path: Path
) -> None:
    async with service(index=tmp_path) as client:
        samples = read((await client.get("/metrics")).text)
    assert value(samples, "ready") == 0
    assert not {name for name, _ in samples} & {"aladin_index_generation", "aladin_index_items"}


def test_a_state_is_written_as_it_is() -> None:
    text = render_state(StateNow(False, HEALTH, 128, None)).decode()
    samples = read(text)
    names = ("ready", "queue_limit", "workers_wanted", "workers_alive")
    assert [value(samples, name) for name in names] == [0, 128, 3, 2]
    assert value(samples, "index_generation") == 5
    assert value(samples, "index_generation_refused") == 1
    assert label(samples, "process_memory_bytes", "process") == {"front", "worker-1"}
    assert "why" not in text
    (build,) = [dict(labels) for name, labels in samples if name == "aladin_build_info"]
    assert set(build) == {"version", "python", "torch", "faiss"}


class BusyWorkers(StillWorkers):
    """Workers that answer the first call, and then do what a test says."""

    state = HEALTH

    def __init__(self, error: Exception | None) -> None:
        self._answers: list[object] = ["the index"]
        self.error = error

    async def call(self, job: object) -> object:
        """Answer, fail, or never come to it."""
        del job
        if self._answers:
            return self._answers.pop()
        if self.error is not None:
            raise self.error
        return await asyncio.Event().wait()


@pytest.mark.anyio
@pytest.mark.parametrize("error", [None, OverloadedError(1.0)])
async def test_a_scrape_waits_for_no_worker(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_metrics, "_DESCRIBE_S", 0.01)
    described: list[object] = []

    def keep(now: StateNow) -> bytes:
        described.append(now.live)
        return b""

    monkeypatch.setattr(state_metrics, "render_state", keep)
    workers, metrics = BusyWorkers(error), StateMetrics()
    for fails in (error, error, IndexNotReadyError("gone")):
        workers.error = fails
        await metrics.render(workers, max_waiting=1, draining=False)  # pyright: ignore[reportArgumentType]
    assert described == ["the index", "the index", None]  # what was known before, until it is gone


SIZE_BYTES, SLACK_BYTES = 64 * 2**20, 16 * 2**20  # what else changes meanwhile


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_filled_pages_are_own_memory_and_a_mapped_file_is_shared(tmp_path: Path) -> None:
    file = tmp_path / "mapped"
    file.write_bytes(b"\1" * SIZE_BYTES)
    before = process_memory(os.getpid())
    # Pages of its own: an array may get memory that the process kept from an earlier one.
    with mmap.mmap(-1, SIZE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        for _ in range(SIZE_BYTES // 2**20):
            pages.write(b"\1" * 2**20)
        filled = process_memory(os.getpid())
    mapped = np.memmap(file, mode="r")
    assert mapped.sum(dtype=np.int64) == SIZE_BYTES  # has all of it read
    after = process_memory(os.getpid())
    assert before is not None
    assert filled is not None
    assert after is not None
    assert abs(filled.own - before.own - SIZE_BYTES) < SLACK_BYTES
    assert abs(after.shared - before.shared - SIZE_BYTES) < SLACK_BYTES
    assert abs(after.own - before.own) < SLACK_BYTES
    assert process_memory(sys.maxsize) is None  # which is not there


@pytest.mark.slow
def test_every_search_is_counted_and_logged_once_whichever_worker_did_it(
    index_folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    options = ["--workers", "2", "--log-format", "json"]
    with ServiceProcess(index_folder, options, log=log) as service:

        def ask(number: int) -> str:
            body = {"text": f"a dog {number}"}
            answer = httpx.post(f"{service.url}/v1/search/images", json=body, timeout=60)
            assert answer.status_code == 200
            return answer.headers["X-Request-ID"]

        with ThreadPoolExecutor(4) as clients:
            ids = list(clients.map(ask, range(40)))
        samples = read(httpx.get(f"{service.url}/metrics").text)
        workers = httpx.get(f"{service.url}/readyz").json()["workers"]
    assert workers == {"wanted": 2, "alive": 2}
    route = {"method": "POST", "route": "/v1/search/images"}
    assert value(samples, "http_requests_total", **route, status="200") == 40
    assert value(samples, "search_stage_duration_seconds_count", stage="total") == 40
    assert value(samples, "batch_size_sum", lane="text") == 40
    assert value(samples, "encoding_cache_lookups_total", result="miss") == 40
    processes = label(samples, "process_memory_bytes", "process")
    assert processes == {"front", "worker-0", "worker-1"}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    searches = [line for line in lines if line.get("route") == "/v1/search/images"]
    assert sorted(line["request_id"] for line in searches) == sorted(ids)
    assert "a dog" not in log.read_text()
