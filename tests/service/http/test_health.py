"""When the service says that it is up, and when that it is ready."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aladin_service.http.app import create_app
from aladin_service.http.routes import health
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.health import WorkersHealth
from tests.service.http.conftest import StillWorkers, opened, told

pytestmark = pytest.mark.anyio


class IdleWorkers(StillWorkers):
    """A job of theirs never ends."""

    calls = 0

    async def call(self, job: object) -> object:
        del job
        self.calls += 1
        return await asyncio.Event().wait()


def state_of(wanted: int, alive: int, generation: int | None, **more: Any) -> WorkersHealth:
    return WorkersHealth(wanted=wanted, alive=alive, generation=generation, **more)


WHY = "/secret/place/tokens.npy: expected 10 bytes, got 9"
AWAY = "unavailable"


async def test_readiness_follows_workers_engine_and_index_and_liveness_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "_OPEN_S", 0.01)
    workers, ready = IdleWorkers(), state_of(2, 2, 3)
    app = create_app(workers, ServiceSettings(), Metrics())  # pyright: ignore[reportArgumentType]
    async with opened(app) as client:
        for state, code, words in (
            (state_of(2, 1, 3), "workers_missing", "1 of 2 workers are available"),
            (ready, None, ""),
            (state_of(1, 1, 3, engine=AWAY), "engine_unavailable", ""),
            # A service that has not been able to open anything yet says the same.
            (state_of(1, 1, None, engine=AWAY), "engine_unavailable", ""),
            (state_of(1, 1, 3, engine="up"), None, ""),
            (state_of(1, 1, 3, refused=WHY), None, ""),
            (state_of(1, 1, None, refused=WHY), "index_not_ready", "generation is invalid"),
            (state_of(1, 1, None), "index_not_ready", ""),
        ):
            workers.state = state
            answer = await client.get("/readyz")
            if code is None:
                assert answer.status_code == 200
                assert answer.json() == {
                    "status": "ready",
                    "generation": 3,
                    "workers": {"wanted": state.wanted, "alive": state.alive},
                    "refused": state.refused is not None,
                }
            else:
                assert (told(answer)[:2], words in told(answer)[2]) == ((503, code), True)
                assert code != "engine_unavailable" or answer.headers["Retry-After"] == "1"
            assert "secret" not in answer.text
            assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert workers.calls > 0  # asked whether an index is there, and nobody had time
        workers.state = ready
        app.state.service.draining = True
        assert told(await client.get("/readyz"))[:2] == (503, "shutting_down")
        assert (await client.get("/healthz")).status_code == 200
