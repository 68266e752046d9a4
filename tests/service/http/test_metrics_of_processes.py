"""Counts and log lines of a service with several worker processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.slow

WORKERS = 2
SEARCHES = 40


class Served:
    """A service in its own process, and the lines that it wrote on stderr."""

    def __init__(self, index: Path) -> None:
        command: list[str | Path] = [Path(sys.executable).with_name("aladin"), "serve", index]
        options = ["--port", "0", "--workers", str(WORKERS), "--log-format", "json"]
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[dict[str, Any]] = []
        self.url = self._url()

    def _url(self) -> str:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.lines.append(json.loads(text))
            found = re.search(r"http://127\.0\.0\.1:\d+", self.lines[-1]["message"])
            if found:
                return found[0]
        pytest.fail("the service ended before it listened")

    def stop(self) -> int:
        """Stop it, read the rest of its lines, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=60)
        self.lines += map(json.loads, rest.splitlines())
        return self.process.returncode


@pytest.fixture
def served(index_folder: Path) -> Iterator[Served]:
    """A service with several worker processes."""
    served = Served(index_folder)
    yield served
    if served.process.poll() is None:
        served.process.kill()
        served.process.wait()


def scrape(url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return all samples by their name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
        for sample in family.samples
    }


def test_every_search_is_counted_and_logged_once_whichever_worker_did_it(served: Served) -> None:
    def ask(number: int) -> str:
        body = {"text": f"a dog {number}"}
        answer = httpx.post(f"{served.url}/v1/search/images", json=body, timeout=60)
        assert answer.status_code == 200
        return answer.headers["X-Request-ID"]

    with ThreadPoolExecutor(4) as clients:
        ids = list(clients.map(ask, range(SEARCHES)))
    samples = scrape(served.url)
    ready = httpx.get(f"{served.url}/readyz").json()
    assert served.stop() == 0

    def value(name: str, **labels: str) -> float:
        return samples[name, frozenset(labels.items())]

    route = {"method": "POST", "route": "/v1/search/images"}
    assert value("aladin_http_requests_total", **route, status="200") == SEARCHES
    assert value("aladin_search_stage_duration_seconds_count", stage="total") == SEARCHES
    assert value("aladin_batch_size_sum", lane="text") == SEARCHES
    assert value("aladin_encoding_cache_lookups_total", result="miss") == SEARCHES
    assert value("aladin_workers_wanted") == value("aladin_workers_alive") == WORKERS
    processes = {
        dict(labels)["process"] for name, labels in samples if name == "aladin_process_memory_bytes"
    }
    assert processes == {"front", "worker-0", "worker-1"}
    assert ready["workers"] == {"wanted": WORKERS, "alive": WORKERS}

    searches = [line for line in served.lines if line.get("route") == "/v1/search/images"]
    assert sorted(line["request_id"] for line in searches) == sorted(ids)
    assert not any("a dog" in json.dumps(line) for line in served.lines)
