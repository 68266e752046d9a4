"""When the service says that it is up, and when that it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from aladin_service.http.app import create_app
from aladin_service.http.routes import health
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.health import WorkersHealth

pytestmark = pytest.mark.anyio

READY = WorkersHealth(wanted=2, alive=2, generation=3)


class StandInWorkers:
    """Workers in whatever health a test wants; a job of theirs never ends."""

    def __init__(self, health: WorkersHealth) -> None:
        self.state = health
        self.calls = 0

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def call(self, job: object) -> object:
        """Count the job and never do it."""
        del job
        self.calls += 1
        return await asyncio.Event().wait()

    def health(self) -> WorkersHealth:
        """Return what the test says."""
        return self.state


@asynccontextmanager
async def served(
    workers: StandInWorkers,
) -> AsyncGenerator[tuple[FastAPI, httpx.AsyncClient]]:
    """An application with these workers, and a client of it."""
    app = create_app(workers, ServiceSettings(), Metrics())  # pyright: ignore[reportArgumentType]
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield app, client


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the error after checking that the body has the form of errors."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "request_id"}
    return body["error"]


async def test_ready_tells_the_generation_and_the_workers() -> None:
    async with served(StandInWorkers(READY)) as (_, client):
        answer = await client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "generation": 3,
        "workers": {"wanted": 2, "alive": 2},
        "refused": False,
    }


async def test_a_worker_that_is_missing_flips_it_until_another_one_is_there() -> None:
    workers = StandInWorkers(WorkersHealth(wanted=2, alive=1, generation=3))
    async with served(workers) as (_, client):
        missing = await client.get("/readyz")
        workers.state = READY
        back = await client.get("/readyz")
    assert missing.status_code == 503
    error = error_of(missing)
    assert error["code"] == "workers_missing"
    assert error["message"] == "1 of 2 workers are available"
    assert back.status_code == 200


async def test_readiness_follows_the_engine_and_liveness_does_not() -> None:
    workers = StandInWorkers(WorkersHealth(wanted=1, alive=1, generation=3, engine="unavailable"))
    async with served(workers) as (_, client):
        away = await client.get("/readyz")
        up = await client.get("/healthz")
        # A service that has not been able to open anything yet says the same.
        workers.state = WorkersHealth(wanted=1, alive=1, generation=None, engine="unavailable")
        never = await client.get("/readyz")
        workers.state = WorkersHealth(wanted=1, alive=1, generation=3, engine="up")
        back = await client.get("/readyz")
    for answer in (away, never):
        assert answer.status_code == 503
        assert error_of(answer)["code"] == "engine_unavailable"
        assert answer.headers["Retry-After"] == "1"
    assert (up.status_code, back.status_code) == (200, 200)


async def test_not_ready_from_the_moment_it_shuts_down() -> None:
    async with served(StandInWorkers(READY)) as (app, client):
        app.state.service.draining = True
        answer = await client.get("/readyz")
        up = await client.get("/healthz")
    assert answer.status_code == 503
    assert error_of(answer)["code"] == "shutting_down"
    assert up.status_code == 200


async def test_a_probe_is_answered_though_no_worker_has_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "_OPEN_S", 0.01)
    workers = StandInWorkers(WorkersHealth(wanted=2, alive=2, generation=None))
    async with served(workers) as (_, client):
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert error_of(answer)["code"] == "index_not_ready"
    assert workers.calls == 1


async def test_a_refused_generation_is_told_without_where_its_files_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "_OPEN_S", 0.01)
    why = "/secret/place/tokens.npy: expected 10 bytes, got 9"
    workers = StandInWorkers(WorkersHealth(wanted=1, alive=1, generation=3, refused=why))
    async with served(workers) as (_, client):
        older = await client.get("/readyz")
        workers.state = WorkersHealth(wanted=1, alive=1, generation=None, refused=why)
        none = await client.get("/readyz")
    assert older.status_code == 200
    assert older.json()["refused"] is True
    assert none.status_code == 503
    assert error_of(none)["message"] == "no index is live: the published generation is invalid"
    assert "secret" not in older.text + none.text


async def test_healthz_asks_no_worker() -> None:
    workers = StandInWorkers(WorkersHealth(wanted=2, alive=0, generation=None))
    async with served(workers) as (_, client):
        answer = await client.get("/healthz")
    assert answer.json() == {"status": "ok"}
    assert workers.calls == 0
