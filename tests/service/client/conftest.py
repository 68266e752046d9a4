"""The service on a socket of this machine, run by a thread of the tests."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from service.http.app import create_app
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.work.thread_workers import ThreadWorkers
from service.work.worker_plan import WorkerPlan


@pytest.fixture(scope="module")
def url(index_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a service whose index may be changed."""
    index = tmp_path_factory.mktemp("served") / "index"
    shutil.copytree(index_folder, index)
    settings, metrics = ServiceSettings(), Metrics()
    workers = ThreadWorkers(WorkerPlan(index=index, settings=settings).make(), settings, metrics)
    app = create_app(workers, settings, metrics)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()
        assert not thread.is_alive()
