"""Photos that are costly: whoever sends or asks for them harms nobody else."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import aladin_service.photos.photo_bytes as photo_bytes
import aladin_service.work.jobs as photo_jobs
from aladin_network.photos.decoding import decoded_image
from aladin_service.http.app import create_app
from aladin_service.http.error_responses import HUNG_UP
from aladin_service.observe.metrics import Metrics
from aladin_service.photos.photo_bytes import PhotoBytes
from aladin_service.settings import ServiceSettings
from aladin_service.work import worker
from aladin_service.work.worker import JOB_QUEUES, WorkerPlan
from aladin_service.work.workers import ThreadWorkers
from tests.aladin.pictures import webp_of
from tests.service.http.conftest import http_scope, opened, told, until_hung_up

pytestmark = pytest.mark.anyio

# For what another thread does, on a machine that does much else.
_LONG_S = 30.0


async def upload(
    client: httpx.AsyncClient, path: str, data: bytes, **fields: str
) -> httpx.Response:
    return await client.post(path, files={"image": ("a", data)}, data=fields)


async def test_a_photo_that_finds_no_memory_in_its_time_is_put_off(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(index) as (client, workers):
        memory = workers._worker.memory  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(memory, "patience_s", 0.05)
        with memory.reserve(memory.max_bytes, "another photo"):
            answers = [
                await upload(client, "/v1/search/texts", webp_of(100, 100)),
                await upload(client, "/v1/items/images", webp_of(100, 100), id="new"),
                await client.get("/v1/images/plain", params={"size": 32}),
            ]
        after = await upload(client, "/v1/search/texts", webp_of(100, 100))
        missing = await client.get("/v1/items/images/new")
    for answer in answers:
        assert told(answer)[:2] == (429, "overloaded")
        assert answer.headers["Retry-After"] == "1"
    assert (after.status_code, missing.status_code) == (200, 404)


@asynccontextmanager
async def serving(
    index: Path, **settings: Any
) -> AsyncGenerator[tuple[httpx.AsyncClient, ThreadWorkers]]:
    """Serve an index; yields a client, and the workers."""
    chosen, metrics = ServiceSettings(**settings), Metrics()
    plan = WorkerPlan(index=index, settings=chosen)
    workers = ThreadWorkers(plan.make(metrics.engine_call), chosen, metrics)
    app = create_app(workers, chosen, metrics)
    async with opened(app, raise_app_exceptions=False) as client:
        await upload(client, "/v1/items/images", bmp(), id="slow")
        yield client, workers


def bmp() -> bytes:
    """A small picture of a kind that is written anew."""
    target = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(target, "BMP")
    return target.getvalue()


class Held:
    """Stands for a photo that takes long to be written."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.calls = 0

    async def all_begun(self) -> None:
        """Wait until each thread is held."""
        for _ in range(JOB_QUEUES["original"].threads):
            assert await asyncio.to_thread(self.begun.acquire, timeout=_LONG_S)

    def __call__(self, *arguments: Any) -> PhotoBytes:
        self.calls += 1
        self.begun.release()
        assert self.go_on.wait(_LONG_S)
        return photo_bytes.rewritten_photo(*arguments)


async def ask_for_slow(client: httpx.AsyncClient, hang_up: asyncio.Event) -> set[int]:
    app = client._transport.app  # pyright: ignore
    return await until_hung_up(app, http_scope("/v1/images/slow"), hang_up)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Holds up photos that are written anew, of which none is kept."""
    held = Held()
    monkeypatch.setattr(photo_jobs, "rewritten_photo", held)
    monkeypatch.setattr(worker, "_PICTURE_CACHE_BYTES", 0)
    return held


async def test_photos_that_take_long_hold_up_neither_small_ones_nor_changes(
    index: Path, held: Held
) -> None:
    async with serving(index) as (client, _):
        slow = [asyncio.create_task(client.get("/v1/images/slow")) for _ in range(8)]
        await held.all_begun()
        async with asyncio.timeout(_LONG_S):
            answers = [
                await client.get("/v1/images/slow", params={"size": 32}),
                await client.post("/v1/items/texts", json={"id": "new", "text": "a dog"}),
                await client.get("/v1/items/texts/new"),
                await client.delete("/v1/items/texts/new"),
                await client.get("/v1/explain.png", params={"text": "a dog", "id": "plain"}),
            ]
        assert [answer.status_code for answer in answers] == [200, 201, 200, 200, 200]
        held.go_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*slow)} == {200}


async def test_a_photo_that_was_written_anew_is_kept(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    held.go_on.set()
    monkeypatch.setattr(photo_jobs, "rewritten_photo", held)
    async with serving(index) as (client, _):
        first = await client.get("/v1/images/slow")
        again = await client.get("/v1/images/slow")
        assert (first.status_code, first.headers["content-type"]) == (200, "image/png")
        assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
        assert held.calls == 1


async def test_clients_that_hang_up_withdraw_their_photos(index: Path, held: Held) -> None:
    async with serving(index) as (client, workers):
        hang_up = asyncio.Event()
        calls = [asyncio.create_task(ask_for_slow(client, hang_up)) for _ in range(8)]
        await held.all_begun()
        hang_up.set()
        async with asyncio.timeout(_LONG_S):
            # Though the threads are not through.
            assert set().union(*await asyncio.gather(*calls)) <= {HUNG_UP}
        held.go_on.set()
        answer = await client.get("/v1/images/slow")
    assert answer.status_code == 200
    assert held.calls == JOB_QUEUES["original"].threads + 1  # none of the six that waited
    assert workers.health().alive == 0 or workers.health().alive == workers.health().wanted


async def test_a_hung_up_client_stops_the_work_between_decoding_and_writing(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding, go_on, written = threading.Event(), threading.Event(), list[str]()

    def slow(*arguments: Any, **options: Any) -> Any:
        decoding.set()
        assert go_on.wait(_LONG_S)
        return decoded_image(*arguments, **options)

    real = photo_bytes._encode  # pyright: ignore[reportPrivateUsage]

    def note(*arguments: Any) -> PhotoBytes:
        written.append("written")
        return real(*arguments)

    monkeypatch.setattr(photo_bytes, "decoded_image", slow)
    monkeypatch.setattr(photo_bytes, "_encode", note)
    async with serving(index) as (client, _):
        hang_up = asyncio.Event()
        call = asyncio.create_task(ask_for_slow(client, hang_up))
        assert await asyncio.to_thread(decoding.wait, _LONG_S)
        hang_up.set()
        async with asyncio.timeout(_LONG_S):
            await call
        go_on.set()
    assert written == []
