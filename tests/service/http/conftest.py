"""Services that no test changes, one over workers without an index, and what is sent to them."""

from __future__ import annotations

import asyncio
import base64
import shutil
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from PIL import Image

from aladin_index.changes.item_changer import TimedAddReport
from aladin_index.changes.writer import AddReport, DeleteReport
from aladin_index.search.results import TookMs
from aladin_network.errors import OverloadedError, UnknownItemError
from aladin_service.api_key import Scope
from aladin_service.http.access.policy import make_policy
from aladin_service.http.app import create_app
from aladin_service.http.connections import trusted_proxies
from aladin_service.http.server import server_config
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, QueueName, SearchJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.health import WorkersHealth
from aladin_service.work.jobs import AddItems, DeleteItem
from aladin_service.work.worker import Job

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]
Open = Service

JSON = {"content-type": "application/json"}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + b64(data)


def told(answer: httpx.Response) -> tuple[int, str, str]:
    """The status, the code and the message of an error in the form of its route."""
    body = answer.json()
    error = body.get("error", body)
    assert (
        error.get("request_id", answer.headers["x-request-id"]) == (answer.headers["x-request-id"])
    )
    return answer.status_code, error.get("code", ""), error["message"]


@asynccontextmanager
async def opened(
    app: FastAPI, base_url: str = "http://localhost", **transport: Any
) -> AsyncGenerator[httpx.AsyncClient]:
    """Run an application, and yield a client of it."""
    connection = httpx.ASGITransport(app, **transport)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=connection, base_url=base_url, timeout=30) as client,
    ):
        yield client


def http_scope(path: str, method: str = "GET", **more: Any) -> dict[str, Any]:
    """A request as a server hands it on."""
    return {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"},
        **{"method": method, "path": path, "raw_path": path.encode(), "query_string": b""},
        **{"headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]},
        **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "root_path": ""},
        **more,
    }


async def until_hung_up(
    app: Any, scope: dict[str, Any], hang_up: asyncio.Event, body: bytes = b""
) -> set[int]:
    """Send a request as a server passes it on, and hang up; returns the statuses of answers."""
    messages, statuses = [{"type": "http.request", "body": body, "more_body": False}], set[int]()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await hang_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.add(message["status"])

    await app(scope, receive, send)
    return statuses


@contextmanager
def listening(
    app: Any, settings: ServiceSettings, proxies: str = ""
) -> Generator[tuple[int, uvicorn.Server]]:
    """Serve behind proxies on a free port of 127.0.0.1; gives the port."""
    config = server_config(app, settings, trusted_proxies({"FORWARDED_ALLOW_IPS": proxies}))
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1], server
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
async def client(service: Service) -> AsyncGenerator[httpx.AsyncClient]:
    """Of a service that keeps its index."""
    async with service() as client:
        yield client


@pytest.fixture(scope="session")
async def calibrated(service: Service, calibrated_index: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """Of a service that keeps its index and knows probabilities."""
    async with service(calibrated_index) as client:
        yield client


class StillWorkers:
    """Workers without an index, in whatever state a test wants; tests say what they answer."""

    state = WorkersHealth(wanted=1, alive=1, generation=1)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def health(self) -> WorkersHealth:
        return self.state

    def refusal(self, queue: QueueName) -> OverloadedError | None:
        del queue
        return None

    async def call(self, job: Job[Any]) -> Any:
        raise NotImplementedError

    async def search(self, job: SearchJob) -> Answered:
        raise NotImplementedError


def empty_answer(body: bytes = b'{"hits":[]}') -> Answered:
    took_ms = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
    return Answered(body=body, generation=1, degraded=(), took_ms=took_ms)


class FakeWorkers(StillWorkers):
    """Answers every search with no hits, adds and deletes texts; nothing else is there.

    Attributes:
        done: the jobs that came through.
        failure: raised for every job, if there is one.
    """

    def __init__(self) -> None:
        self.done: list[object] = []
        self.failure: Exception | None = None

    async def search(self, job: SearchJob) -> Answered:
        self._note(job)
        return empty_answer()

    async def call(self, job: Job[Any]) -> Any:
        """Pretend to change the index."""
        self._note(job)
        if isinstance(job, AddItems):
            ids = {"added": [item.id for item in job.items], "replaced": [], "kept": []}
            return TimedAddReport(report=AddReport(3, ids), decode_ms=0, encode_ms=0, write_ms=0)
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


@pytest.fixture
def door(workers: FakeWorkers, clock: Clock) -> Open:
    """Opens the application over `workers`: ``async with door(keys_file=file) as client``."""

    @asynccontextmanager
    async def run(
        host: str = "127.0.0.1", client: tuple[str, int] = ("127.0.0.1", 5000), **settings: Any
    ) -> AsyncGenerator[httpx.AsyncClient]:
        made = ServiceSettings(**settings)
        policy = make_policy(made, host, clock)
        app = create_app(workers, made, Metrics(), policy=policy)
        async with opened(app, "http://127.0.0.1:8000", client=client) as http:
            yield http

    return run


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    """An index that a test may change."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


@pytest.fixture(scope="session")
def photo(query_photo: Image.Image, encoded: Encoded) -> bytes:
    """A picture file of 64 x 48 pixels that is not in the index."""
    return encoded(query_photo)
