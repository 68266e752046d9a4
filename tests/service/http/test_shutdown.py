"""How the service ends: what it took is finished, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from aladin_service.http.server import GracefulServer
from benchmarks.lib.service_process import ServiceProcess

pytestmark = pytest.mark.anyio

_LONG_S = 30.0


@pytest.fixture
def harmless_signals() -> Iterator[None]:
    """The server raises again the signals that it has acted upon; here nobody minds."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("harmless_signals")
async def test_what_was_taken_is_finished_and_nothing_more_is_taken() -> None:
    app, told = FastAPI(), asyncio.Event()
    running, release = asyncio.Event(), asyncio.Event()

    @app.get("/slow")
    async def slow() -> str:
        running.set()
        await release.wait()
        return "done"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=30)
        server = GracefulServer(config, told.set)
        serving = asyncio.create_task(server.serve([listener]))
        async with httpx.AsyncClient(base_url=url, timeout=_LONG_S) as client:
            request = asyncio.create_task(client.get("/slow"))
            await asyncio.wait_for(running.wait(), _LONG_S)
            server.handle_exit(signal.SIGTERM, None)
            assert told.is_set()  # before anything else
            async with asyncio.timeout(_LONG_S):
                while listener.fileno() != -1:  # it listens no more
                    await asyncio.sleep(0.01)
            with pytest.raises(httpx.ConnectError):
                await asyncio.to_thread(httpx.get, f"{url}/slow")
            assert not request.done()
            release.set()
            assert (await request).json() == "done"
        await asyncio.wait_for(serving, _LONG_S)


def test_a_stop_signal_before_the_server_runs_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    config = uvicorn.Config(FastAPI(), log_config=None, lifespan="off")
    server = GracefulServer(config, told.set)
    run = server.run

    def signalled_first(**options: list[socket.socket]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        run(**options)

    monkeypatch.setattr(server, "run", signalled_first)
    late = threading.Timer(_LONG_S, setattr, (server, "should_exit", True))
    late.start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.serve_until_stopped(listener)
    late.cancel()
    assert told.is_set()  # as by a signal that comes later


@pytest.mark.slow
def test_a_stop_signal_ends_all_processes_when_all_is_answered(index_folder: Path) -> None:
    settings = {"ALADIN_MAX_WAIT_MS": "60000"}  # nothing is refused for lack of room
    with ServiceProcess(index_folder, ["--workers", "2"], settings) as service:
        pids = service.pids()
        assert len(pids) >= 4
        statuses: list[int] = []

        def ask() -> None:
            # Whoever has sent nothing yet when the service stops to listen is not taken.
            with contextlib.suppress(httpx.TransportError):
                url = f"{service.url}/v1/search/images"
                answer = httpx.post(url, json={"text": "a dog"}, timeout=_LONG_S)
                statuses.append(answer.status_code)

        clients = [threading.Thread(target=ask) for _ in range(30)]
        for client in clients:
            client.start()
        while not statuses:
            time.sleep(0.001)
        # As a service manager does: to all of them. Only the first acts upon it.
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        assert service.process.wait(_LONG_S) == 0
        for client in clients:
            client.join()
        assert set(statuses) == {200}
        assert _left(pids) == []


@pytest.mark.slow
def test_no_process_outlives_the_service(index_folder: Path) -> None:
    with ServiceProcess(index_folder, ["--workers", "2"]) as service:
        pids = service.pids()
        service.process.kill()
        service.process.wait()
        assert _left(pids) == []


def _left(pids: list[int]) -> list[int]:
    """Wait for processes to end; return those that do not."""
    deadline_s = time.monotonic() + _LONG_S
    left = list(pids)
    while left and time.monotonic() < deadline_s:
        listed = subprocess.run(
            ["ps", "-o", "pid=,stat=", "-p", ",".join(map(str, left))],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split("\n")
        left = [int(line.split()[0]) for line in listed if line and "Z" not in line.split()[1]]
        time.sleep(0.02)
    return left
