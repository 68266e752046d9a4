"""Three replicas of the service before one real Milvus: one index, whoever is asked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from benchmarks.lib.milvus_server import MilvusServer
from tests.milvus_needed import STARTS_MILVUS

pytestmark = STARTS_MILVUS

# For a server or a service to start, on a machine that does much else.
_LONG_S = 120.0
TEXTS = ["a red dog", "two men ride a motorcycle", "a star on the grass", "a man in the street"]


@dataclass
class Replica:
    """One ``aladin serve``.

    Attributes:
        url: where it listens.
        process: of it.
        log: file of what it says.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def search(self, text: str, target: str = "images", **options: Any) -> httpx.Response:
        body = {"text": text, **options}
        return httpx.post(f"{self.url}/v1/search/{target}", json=body, timeout=30)

    def ready(self) -> httpx.Response:
        return httpx.get(f"{self.url}/readyz", timeout=30)


@contextmanager
def replica(folder: Path, *options: str) -> Iterator[Replica]:
    """Run a service of an index folder on a free port."""
    log = folder.with_suffix(".log")
    with log.open("w") as said:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("aladin"), "serve", folder, "--port", "0", *options],
            stderr=said,
            env=os.environ
            | {
                "ALADIN_ENGINE_TIMEOUT_S": "6",
                "ALADIN_ENGINE_POLL_S": "0.5",
                "ALADIN_QUERY_PRECISION": "float32",
                "OMP_NUM_THREADS": "1",
            },
        )
    try:
        one = Replica("", process, log)
        until(lambda: process.poll() is not None or "listening on" in one.said(), "no service")
        found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", one.said())
        assert found is not None, one.said()
        one.url = found[1]
        yield one
    finally:
        process.terminate()
        process.wait(30)


def until(holds: Callable[[], bool], what: str) -> None:
    started = time.monotonic()
    while not holds():
        assert time.monotonic() < started + _LONG_S, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    """A Milvus of this module."""
    with MilvusServer(tmp_path_factory.mktemp("milvus")) as server:
        yield server


@pytest.fixture(scope="module")
def location(server: MilvusServer) -> EngineLocation:
    """Where the index is."""
    return EngineLocation(url=server.url, name="replicas", index="flat")


@pytest.fixture(scope="module")
def push(
    location: EngineLocation, index_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Path]:
    """Publishes the index of `index_folder` as a new generation; returns the engine's folder."""
    folder = tmp_path_factory.mktemp("folder") / "engine"

    def run() -> Path:
        with closing(connect(location)) as client:
            push_index(index_folder, folder, location, client, PushSettings(discard_changes=True))
        return folder

    return run


@pytest.fixture(scope="module")
def replicas(
    push: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Replica]]:
    """Three services with folders of their own, one of them of two worker processes."""
    pushed = push()
    places = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:
        started: list[Replica] = []
        for number, options in enumerate(((), (), ("--workers", "2"))):
            folder = Path(shutil.copytree(pushed, places / str(number)))
            started.append(stack.enter_context(replica(folder, *options)))
        for one in started:
            until(lambda one=one: one.ready().status_code == 200, f"{one.url} is not ready")
        yield started


def without_times(answer: httpx.Response) -> dict[str, Any]:
    """Return an answer's body without what differs from one run to the next."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    del body["took_ms"]
    return body


def test_what_one_adds_all_find(replicas: list[Replica]) -> None:
    writer, *others = replicas
    item = {"items": [{"id": "shared", "text": "a purple bird", "metadata": {"by": "one"}}]}
    added = httpx.post(f"{writer.url}/v1/items/texts", json=item, timeout=30)
    assert added.status_code == 201, added.text

    def finds(each: Replica) -> bool:
        hits = without_times(each.search("a bird", "texts", filter={"by": "one"}))["hits"]
        return [hit["id"] for hit in hits] == ["shared"]

    assert finds(writer)  # its own next request
    for other in others:
        until(lambda other=other: finds(other), "another replica does not find it")
    httpx.delete(f"{others[0].url}/v1/items/texts/shared", timeout=30).raise_for_status()
    for each in replicas:
        until(lambda each=each: not finds(each), "another replica finds what was deleted")


def test_all_take_up_a_new_generation(replicas: list[Replica], push: Callable[[], Path]) -> None:
    before = {each.ready().json()["generation"] for each in replicas}
    assert len(before) == 1
    push()
    after = before.pop() + 1
    for each in replicas:
        until(
            lambda each=each: each.ready().json().get("generation") == after,
            "a replica stays with the old generation",
        )
        # Each worker process asks the database by itself: readiness names the newest generation.
        until(
            lambda each=each: all(answered_by(each, text) == after for text in TEXTS),
            "a worker stays with the old generation",
        )


def answered_by(each: Replica, text: str) -> int:
    """Return the generation that answers a text."""
    return without_times(each.search(text))["generation"]


def test_an_engine_that_is_killed_under_load_and_started_again(
    replicas: list[Replica], server: MilvusServer
) -> None:
    expected = {text: without_times(replicas[0].search(text))["hits"] for text in TEXTS}
    statuses: Counter[int] = Counter()
    wrong: list[Any] = []
    took_s: list[float] = []
    ends = threading.Event()

    def ask(each: Replica) -> None:
        number = 0
        while not ends.is_set():
            text = TEXTS[number % len(TEXTS)]
            number += 1
            started = time.monotonic()
            answer = each.search(text)
            took_s.append(time.monotonic() - started)
            statuses[answer.status_code] += 1
            if answer.status_code == 200:
                body = answer.json()
                if body["degraded"] == [] and body["hits"] != expected[text]:
                    wrong.append(body)
            elif answer.status_code == 503:
                if answer.json()["error"]["code"] != "engine_unavailable":
                    wrong.append(answer.text)
                assert "Retry-After" in answer.headers
                time.sleep(0.05)

    clients = [threading.Thread(target=ask, args=(each,)) for each in replicas]
    for client in clients:
        client.start()
    try:
        time.sleep(1.0)
        server.kill()
        for each in replicas:
            until(lambda each=each: each.ready().status_code == 503, "a replica stays ready")
            assert each.ready().json()["error"]["code"] == "engine_unavailable"
            assert httpx.get(f"{each.url}/healthz", timeout=30).status_code == 200
        started = time.monotonic()
        assert replicas[0].search("a dog").status_code == 503
        assert time.monotonic() - started < 1.0  # at once, and not when the time of a call is up
        server.start()
        for each in replicas:
            until(lambda each=each: each.ready().status_code == 200, "a replica stays away")
        time.sleep(1.0)
    finally:
        ends.set()
        for client in clients:
            client.join()
    assert wrong == []
    assert max(took_s) < 6  # the time of one call, though all of them met a dead engine
    assert set(statuses) == {200, 503}
    for each in replicas:
        assert {text: without_times(each.search(text))["hits"] for text in TEXTS} == expected
        assert each.process.poll() is None
        assert "Traceback" not in each.said()
    metrics = httpx.get(f"{replicas[2].url}/metrics", timeout=30).text
    assert "aladin_engine_up 1.0" in metrics
    # Of worker processes, too.
    calls = re.search(r'call_duration_seconds_count\{operation="search"\} (\d+)', metrics)
    assert calls is not None
    assert int(calls[1]) > 0
