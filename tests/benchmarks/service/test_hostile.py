"""The attack's small form: what it prints, and that it finds what it looks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest

from aladin_service.mcp.tools import TOOL_NAMES
from benchmarks.service import hostile_requests as hostile_connections
from benchmarks.service.hostile_json import MAX_ANSWER_BYTES, JsonAttack, json_attacks, send_attack
from benchmarks.service.hostile_requests import Answers, send_images, send_paths
from benchmarks.service.loop_stall import LoopStall


class Careless(BaseHTTPRequestHandler):
    """A service that reads whatever file it is asked for, and fails at every upload."""

    folder = Path()
    said = b""
    pause_s = 0.0

    def do_GET(self) -> None:
        """Send a file, after a pause."""
        time.sleep(self.pause_s)
        name = unquote(self.path.removeprefix("/v1/images/"))
        try:
            content = (self.folder / name).read_bytes()
        except (OSError, ValueError):
            content = b"nothing"
        self.answer(200, content)

    def do_POST(self) -> None:
        """Fail."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(503, self.said)

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
    Careless.folder, Careless.said, Careless.pause_s = tmp_path / "index", b"", 0.0
    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_service_that_reads_other_files_is_found_out(careless: int, tmp_path: Path) -> None:
    answers = Answers()
    sent = send_paths(careless, tmp_path / "canary", tmp_path / "index", answers)
    assert sent > 1000
    assert answers.count("leak") > 3


def test_a_service_that_fails_is_found_out(careless: int) -> None:
    answers = Answers()
    assert send_images(f"http://127.0.0.1:{careless}", 3, answers) == 3
    assert answers.count("server_error") == 6
    assert answers.statuses == {"search": {503: 3}, "add": {503: 3}}


def test_a_service_that_answers_at_length_is_found_out(careless: int) -> None:
    answers = Answers()
    attack = JsonAttack("a", "/", lambda size: b" " * size)
    Careless.said = b"n" * MAX_ANSWER_BYTES
    send_attack(careless, attack, 1000, answers)
    assert answers.count("large_answer") == 0
    Careless.said = b"n" * (MAX_ANSWER_BYTES + 1)
    send_attack(careless, attack, 1000, answers)
    assert answers.count("large_answer") == 1
    assert answers.statuses == {"json": {503: 2}}


def test_bodies_have_the_length_that_is_asked_for() -> None:
    attacks = list(json_attacks())
    assert len({attack.name for attack in attacks}) == len(attacks) > 40
    for attack in attacks:
        assert 0.9 * 100_000 < len(attack.body(100_000)) <= 100_000, attack.name
    assert {"/mcp", "/v1/search/images"} < {attack.path for attack in attacks}
    whole = {attack.name for attack in attacks if attack.whole}
    assert whole == {"spaces in base64", "delimiters of a form", "spaces of a form"}


def test_bodies_for_agents_are_calls_of_a_tool() -> None:
    calls = [
        attack for attack in json_attacks() if attack.path == "/mcp" and " of a tool" in attack.name
    ]
    assert len(calls) == 5
    for attack in calls:
        message = json.loads(attack.body(10_000))
        assert message["params"]["name"] in TOOL_NAMES
        assert message["params"]["arguments"]["query"] == "a"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_loop_that_stands_still_is_found_out(careless: int) -> None:
    with LoopStall(careless, [os.getpid()]) as stall:
        time.sleep(0.1)
        Careless.pause_s = 1.5
        time.sleep(0.5)
        Careless.pause_s = 0.0
    assert stall.worst_wall_s > 1.4
    # Less what threads of this process waited for a processor.
    assert 0.1 < stall.worst_s <= stall.worst_wall_s


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
        held = hostile_connections.send_held_connections(port, answers, held=5)
        server.shutdown()
        thread.join()
    assert held == 20
    assert answers.count("server_error") == 8
    assert all("/healthz beside 5 connections" in fault.asked for fault in answers.faults)


@pytest.mark.slow
def test_the_quick_form() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.hostile", "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert figures["api_cases"] >= 300
    assert figures["images"] == 150
    assert figures["json"]["sent"] > 200
    assert figures["held_connections"] == 4 * 520
    assert figures["batch"]["others"] > 0
    for name in ("errors_5xx", "hangs", "leaks", "undocumented", "json_faults"):
        assert figures[name] == 0, figures["faults"]
