"""The service in its own process, over a real socket."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest


class Served(NamedTuple):
    """``aladin serve`` in a process of its own, and the file with all that it writes to stderr."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


def until(condition: Callable[[], object], log: Path, process: subprocess.Popen[bytes]) -> Any:
    """Wait for what a service does; return what the condition returns."""
    ends = time.monotonic() + 120
    while not (found := condition()):
        said = log.read_text(encoding="utf-8")
        assert process.poll() is None and time.monotonic() < ends, said
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def server(index_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The installed command, which was asked to wait for its index until that is published.

    What its clients do shows in its log and its exit status.
    """
    index, folder = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("server")
    log, output = folder / "log", folder / "output"
    command = [Path(sys.executable).with_name("aladin"), "serve", index, "--port", "0", "--wait"]
    with log.open("wb") as messages, output.open("wb") as data:
        process = subprocess.Popen(command, stdout=data, stderr=messages)
    try:
        listens = re.compile(r"search page: (http://\S+);")
        url = until(lambda: listens.search(log.read_text("utf-8")), log, process)[1]
        assert httpx.get(f"{url}/readyz", timeout=30).status_code == 503
        assert "no index here" in log.read_text(encoding="utf-8")
        for name in ("model", "generations"):
            shutil.copytree(index_folder / name, index / name)
        shutil.copy(index_folder / "CURRENT", index / "CURRENT")
        until(lambda: httpx.get(f"{url}/readyz", timeout=30).status_code == 200, log, process)
        yield Served(url, process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    assert process.returncode == 0
    assert output.read_bytes() == b""  # its log is no data
    assert "Traceback" not in log.read_text(encoding="utf-8")  # whatever the clients did


def test_many_clients_at_once_good_and_bad(server: Served) -> None:
    def ask(number: int) -> int:
        body = {"text": "a dog" if number % 2 else ""}
        return httpx.post(f"{server.url}/v1/search/images", json=body, timeout=30).status_code

    with ThreadPoolExecutor(8) as clients:
        statuses = list(clients.map(ask, range(24)))
    assert statuses == [422, 200] * 12


def test_answers_are_not_held_back_by_the_kernel(server: Served) -> None:
    took_s: list[float] = []
    with httpx.Client(base_url=server.url) as client:
        for _ in range(20):
            started = time.perf_counter()
            client.get("/healthz")
            took_s.append(time.perf_counter() - started)
    # Headers and body that wait for each other's acknowledgement take 40 ms every time.
    assert min(took_s[1:]) < 0.03


def test_a_client_that_sends_far_too_much_gets_its_answer(server: Served) -> None:
    path = f"{server.url}/v1/search/texts"
    chunks = (b" " * 2**20 for _ in range(40))
    kind = {"content-type": "application/json"}
    for refused in (
        httpx.post(path, files={"image": b"\0" * (40 * 2**20)}, timeout=60),
        httpx.post(path, content=chunks, headers=kind, timeout=60),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")
    assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_a_client_that_hangs_up_in_the_middle_harms_nobody(server: Served) -> None:
    def break_off() -> Iterator[bytes]:
        yield b'{"text": "a d'
        raise ConnectionError

    path, kind = f"{server.url}/v1/search/images", {"content-type": "application/json"}
    with pytest.raises(ConnectionError):
        httpx.post(path, content=break_off(), headers=kind)
    good = httpx.post(path, json={"text": "a dog"})
    assert (good.status_code, bool(good.headers["X-Request-ID"])) == (200, True)
    assert server.process.poll() is None
