"""The service in its own process, over a real socket."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest


@dataclass(frozen=True)
class Served:
    """``aladin serve`` in a process of its own.

    Attributes:
        url: Where it listens.
        process: Its process.
        log: File with everything that it writes to standard error.
        output: File with everything that it writes to standard output.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    output: Path


@contextmanager
def started(
    index: Path, folder: Path, *options: str, program: Sequence[str | Path]
) -> Generator[Served]:
    """Run ``aladin serve`` on a free port of 127.0.0.1; yields once it listens."""
    command = [*program, "serve", index, "--port", "0", *options]
    log, output = folder / "log", folder / "output"
    with log.open("wb") as messages, output.open("wb") as data:
        process = subprocess.Popen(command, stdout=data, stderr=messages)
    try:
        until = time.monotonic() + 60
        while True:
            said = log.read_text(encoding="utf-8")
            found = re.search(r"search page: (http://\S+);", said)
            if found is not None:
                break
            assert process.poll() is None and time.monotonic() < until, said
            time.sleep(0.1)
        yield Served(found[1], process, log, output)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def server(index_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The installed command, which was asked to wait for its index until that is published.

    What its clients do shows in its log and its exit status.
    """
    index = tmp_path_factory.mktemp("served")
    command = [Path(sys.executable).with_name("aladin")]
    folder = tmp_path_factory.mktemp("server")
    with started(index, folder, "--wait", program=command) as served:
        assert httpx.get(f"{served.url}/readyz").status_code == 503
        assert "no index here" in served.log.read_text(encoding="utf-8")
        for name in ("model", "generations"):
            shutil.copytree(index_folder / name, index / name)
        shutil.copy(index_folder / "CURRENT", index / "CURRENT")
        until = time.monotonic() + 60
        while httpx.get(f"{served.url}/readyz").status_code != 200:
            assert time.monotonic() < until, served.log.read_text(encoding="utf-8")
            time.sleep(0.1)
        yield served
    assert served.process.returncode == 0
    assert served.output.read_bytes() == b""  # its log is no data
    assert "Traceback" not in served.log.read_text(encoding="utf-8")  # whatever the clients did


def test_many_clients_at_once_good_and_bad(server: Served) -> None:
    url, process = server.url, server.process

    def ask(number: int) -> int:
        body = {"text": "a dog" if number % 2 else ""}
        return httpx.post(f"{url}/v1/search/images", json=body, timeout=30).status_code

    with ThreadPoolExecutor(8) as clients:
        statuses = list(clients.map(ask, range(40)))
    assert statuses == [422, 200] * 20
    assert process.poll() is None


def test_answers_are_not_held_back_by_the_kernel(
    server: Served,
) -> None:
    url = server.url
    with httpx.Client(base_url=url) as client:
        took_s: list[float] = []
        for _ in range(20):
            started = time.perf_counter()
            client.get("/healthz")
            took_s.append(time.perf_counter() - started)
    # Headers and body that wait for each other's acknowledgement take 40 ms every time.
    assert min(took_s[1:]) < 0.03


def test_a_client_that_sends_far_too_much_gets_its_answer(
    server: Served,
) -> None:
    url, process = server.url, server.process
    declared = httpx.post(
        f"{url}/v1/search/texts", files={"image": b"\0" * (40 * 2**20)}, timeout=60
    )
    assert declared.status_code == 413
    chunked = httpx.post(
        f"{url}/v1/search/texts",
        content=(b" " * 2**20 for _ in range(40)),
        headers={"content-type": "application/json"},
        timeout=60,
    )
    assert chunked.status_code == 413
    assert chunked.json()["error"]["code"] == "body_too_large"
    assert httpx.get(f"{url}/readyz").status_code == 200
    assert process.poll() is None


def test_a_client_that_hangs_up_in_the_middle_harms_nobody(
    server: Served,
) -> None:
    url, process = server.url, server.process

    def break_off() -> Iterator[bytes]:
        yield b'{"text": "a d'
        raise ConnectionError

    with pytest.raises(ConnectionError):
        httpx.post(
            f"{url}/v1/search/images",
            content=break_off(),
            headers={"content-type": "application/json"},
        )
    good = httpx.post(f"{url}/v1/search/images", json={"text": "a dog"})
    assert good.status_code == 200
    assert good.headers["X-Request-ID"]
    assert process.poll() is None


def test_the_log_names_the_page_first_and_the_description_second(server: Served) -> None:
    url = server.url
    log = server.log.read_text(encoding="utf-8")
    lines = log.splitlines()
    assert httpx.get(url).headers["content-type"].startswith("text/html")
    (line,) = [line for line in lines if "search page: " in line]
    assert line.endswith(f"search page: {url}; HTTP API: {url}/docs")
    assert f"listening on {url}" in log
