"""The whole application over workers that answer without an index, and keys for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from aladin_index.changes.writer import AddReport, DeleteReport
from aladin_index.encode.item_changer import TimedAddReport
from aladin_index.search.results import TookMs
from aladin_network.errors import UnknownItemError
from aladin_service.api_key import Scope
from aladin_service.http.access.policy import make_policy
from aladin_service.http.app import create_app
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, QueueName, SearchJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.health import WorkersHealth
from aladin_service.work.jobs import AddItems, DeleteItem
from aladin_service.work.worker import Job


class FakeWorkers:
    """Answers every search with no hits, adds and deletes texts; nothing else is there.

    Attributes:
        done: the jobs that came through.
        failure: raised for every job, if there is one.
    """

    def __init__(self) -> None:
        self.done: list[object] = []
        self.failure: Exception | None = None

    async def start(self) -> None:
        """Start nothing."""

    async def stop(self) -> None:
        """Stop nothing."""

    def health(self) -> WorkersHealth:
        """Say that all is well."""
        return WorkersHealth(wanted=1, alive=1, generation=1)

    async def search(self, job: SearchJob) -> Answered:
        """Find nothing."""
        self._note(job)
        took_ms = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
        return Answered(body=b'{"hits":[]}', generation=1, degraded=(), took_ms=took_ms)

    def refusal(self, queue: QueueName) -> None:
        """Refuse nothing."""
        del queue

    async def call(self, job: Job[Any]) -> Any:
        """Pretend to change the index."""
        self._note(job)
        if isinstance(job, AddItems):
            report = AddReport(
                3, {"added": [item.id for item in job.items], "replaced": [], "kept": []}
            )
            return TimedAddReport(report=report, decode_ms=0, encode_ms=0, write_ms=0)
        if isinstance(job, DeleteItem) and job.item_id != "nobody":
            return DeleteReport(4, [job.item_id], [])
        raise UnknownItemError("texts", "nobody")

    def _note(self, job: object) -> None:
        self.done.append(job)
        if self.failure is not None:
            raise self.failure


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.fixture
def workers() -> FakeWorkers:
    return FakeWorkers()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def keys(keys_file: Path) -> dict[str, str]:
    """Keys by name, each with the scope that it is named after."""
    scopes: tuple[Scope, ...] = ("read", "write", "metrics")
    return {scope: add_key(keys_file, scope, [scope]) for scope in scopes}


Open = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def door(workers: FakeWorkers, clock: Clock) -> Open:
    """Opens the application: ``async with door(host="0.0.0.0", keys_file=file) as client``."""

    @asynccontextmanager
    async def run(
        host: str = "127.0.0.1",
        client: tuple[str, int] = ("127.0.0.1", 5000),
        base_url: str = "http://127.0.0.1:8000",
        **settings: object,
    ) -> AsyncGenerator[httpx.AsyncClient]:
        made = ServiceSettings(**cast(dict[str, Any], settings))
        policy = make_policy(made, host, clock)
        app = create_app(workers, made, Metrics(), policy=policy)
        transport = httpx.ASGITransport(app, client=client)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url=base_url) as http,
        ):
            yield http

    return run
