"""The attack's small form: what it prints, and that it finds what it looks for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest

from benchmarks import hostile_connections
from benchmarks.hostile_answers import Answers
from benchmarks.hostile_images import send_images
from benchmarks.hostile_paths import send_paths


class Careless(BaseHTTPRequestHandler):
    """A service that reads whatever file it is asked for, and fails at every upload."""

    folder = Path()

    def do_GET(self) -> None:
        """Send a file."""
        name = unquote(self.path.removeprefix("/v1/images/"))
        try:
            content = (self.folder / name).read_bytes()
        except (OSError, ValueError):
            content = b"nothing"
        self.answer(200, content)

    def do_POST(self) -> None:
        """Fail."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(503, b"")

    def answer(self, status: int, content: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[int]:
    """Port of a careless service."""
    (tmp_path / "index").mkdir()
    (tmp_path / "canary").write_text("outside")
    Careless.folder = tmp_path / "index"
    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_service_that_reads_other_files_is_found_out(careless: int, tmp_path: Path) -> None:
    answers = Answers()
    sent = send_paths("127.0.0.1", careless, tmp_path / "canary", tmp_path / "index", answers)
    assert sent > 1000
    assert answers.count("leak") > 3


def test_a_service_that_fails_is_found_out(careless: int) -> None:
    answers = Answers()
    assert send_images(f"http://127.0.0.1:{careless}", 3, answers) == 3
    assert answers.count("server_error") == 6
    assert answers.statuses == {"search": {503: 3}, "add": {503: 3}}


class Full(ThreadingHTTPServer):
    """A service that takes five connections and refuses the next ones, whatever they ask."""

    daemon_threads = True
    taken = 0

    def verify_request(self, request: object, client_address: object) -> bool:
        """Say whether a connection is taken."""
        del request, client_address
        self.taken += 1
        return self.taken <= 5


def test_a_service_that_one_client_fills_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile_connections, "_PROBES", 2)
    monkeypatch.setattr(hostile_connections, "_PROBE_EVERY_S", 0)
    answers = Answers()
    with Full(("127.0.0.1", 0), Careless) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        port = server.server_address[1]
        held = hostile_connections.send_held_connections("127.0.0.1", port, answers, held=5)
        server.shutdown()
        thread.join()
    assert held == 20
    assert answers.count("server_error") == 8
    assert all("/healthz beside 5 connections" in fault.asked for fault in answers.faults)


@pytest.mark.slow
def test_the_quick_form() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.hostile", "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert figures["api_cases"] >= 300
    assert figures["images"] == 150
    assert figures["held_connections"] == 4 * 520
    for name in ("errors_5xx", "hangs", "leaks", "undocumented"):
        assert figures[name] == 0, figures["faults"]
