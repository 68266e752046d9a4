"""The attacks find what they look for in a careless service, and count what is a fault."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest

from aladin_network.photos.decoding import decode_image
from aladin_service.mcp.tools import TOOL_NAMES
from benchmarks.service import hostile_requests
from benchmarks.service.hostile_batch import BatchFigures
from benchmarks.service.hostile_decoding import DecodingFigures, noise_bmp, webp_of
from benchmarks.service.hostile_json import MAX_ANSWER_BYTES, JsonAttack, json_attacks, send_attack
from benchmarks.service.hostile_requests import Answers, send_images, send_paths
from benchmarks.service.loop_stall import LoopStall


class Careless(BaseHTTPRequestHandler):
    """A service that reads whatever file it is asked for, and fails at every upload."""

    folder = Path()
    said = b""
    pause_s = 0.0

    def do_GET(self) -> None:
        time.sleep(self.pause_s)
        name = unquote(self.path.removeprefix("/v1/images/"))
        try:
            content = (self.folder / name).read_bytes()
        except (OSError, ValueError):
            content = b"nothing"
        self.answer(200, content)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(503, self.said)

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class Full(ThreadingHTTPServer):
    """Takes five connections and refuses the next ones, whatever they ask."""

    daemon_threads = True
    taken = 0

    def verify_request(self, request: object, client_address: object) -> bool:
        del request, client_address
        self.taken += 1
        return self.taken <= 5


@contextmanager
def served(kind: type[ThreadingHTTPServer] = ThreadingHTTPServer) -> Iterator[int]:
    """The port of a careless service."""
    Careless.said, Careless.pause_s = b"", 0.0
    with kind(("127.0.0.1", 0), Careless) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_service_that_reads_other_files_or_fails_or_answers_at_length_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Careless, "folder", tmp_path / "index")
    (tmp_path / "index").mkdir()
    (tmp_path / "canary").write_text("outside")
    leaks, failures, lengths = Answers(), Answers(), Answers()
    with served() as port:
        assert send_paths(port, tmp_path / "canary", tmp_path / "index", leaks) > 1000
        assert send_images(f"http://127.0.0.1:{port}", 3, failures) == 3
        for place, size in enumerate((MAX_ANSWER_BYTES, MAX_ANSWER_BYTES + 1)):
            Careless.said = b"n" * size
            send_attack(port, JsonAttack("a", "/", lambda size: b" " * size), 1000, lengths)
            assert lengths.count("large_answer") == place
    assert leaks.count("leak") > 3
    assert failures.count("server_error") == 6
    assert failures.statuses == {"search": {503: 3}, "add": {503: 3}}


def test_a_service_that_one_client_fills_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile_requests, "_PROBES", 2)
    monkeypatch.setattr(hostile_requests, "_PROBE_EVERY_S", 0)
    answers = Answers()
    with served(Full) as port:
        assert hostile_requests.send_held_connections(port, answers, held=5) == 20
    assert answers.count("server_error") == 8
    assert all("/healthz beside 5 connections" in fault.asked for fault in answers.faults)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_loop_that_stands_still_is_found_out() -> None:
    with served() as port, LoopStall(port, [os.getpid()]) as stall:
        time.sleep(0.1)
        Careless.pause_s = 1.5
        time.sleep(0.5)
        Careless.pause_s = 0.0
    assert stall.worst_wall_s > 1.4
    # Less what threads of this process waited for a processor.
    assert 0.1 < stall.worst_s <= stall.worst_wall_s


def test_bodies_have_the_length_asked_for_and_agents_call_tools() -> None:
    attacks = list(json_attacks())
    assert len({attack.name for attack in attacks}) == len(attacks) > 40
    for attack in attacks:
        assert 0.9 * 100_000 < len(attack.body(100_000)) <= 100_000, attack.name
    assert {"/mcp", "/v1/search/images"} < {attack.path for attack in attacks}
    calls = [each for each in attacks if each.path == "/mcp" and " of a tool" in each.name]
    assert len(calls) == 5
    for attack in calls:
        called = json.loads(attack.body(10_000))["params"]
        assert called["name"] in TOOL_NAMES and called["arguments"]["query"] == "a"


def test_costly_photos_are_pictures() -> None:
    assert len(webp_of(8000, 8000)) == 34
    assert decode_image(webp_of(300, 200)).size == (300, 200)
    noise = decode_image(noise_bmp(100))
    assert noise.size == (100, 100)
    assert set(noise.get_flattened_data()) == {(0, 0, 0), (255, 255, 255)}


BATCH = BatchFigures(
    batch_s=20.0,
    batch_answer_mb=33.3,
    batch_peak_mb=150,
    others=200,
    others_429_share=0.0,
    others_median_ms=70.0,
    others_max_ms=210.0,
)
DECODING = DecodingFigures(
    decode_peak_mb=900,
    decode_health_s=0.2,
    decode_statuses={"200": 20, "413": 24, "429": 4},
    withdrawn_thumbnail_s=0.1,
    withdrawn_add_s=0.2,
)


def test_whatever_is_over_its_bound_is_a_fault() -> None:
    assert BATCH.faults == DECODING.faults == []
    for worse, fault in (
        (BATCH._replace(others_429_share=0.66), "66% of the others"),
        (BATCH._replace(batch_answer_mb=115.9), "115.9 MB"),
        (BATCH._replace(batch_answer_mb=float("inf")), "inf MB"),
        (BATCH._replace(others=0), "no other search"),
        (DECODING._replace(decode_peak_mb=1501), "1501 MB"),
        (DECODING._replace(decode_health_s=1.5), "1.5 s"),
        (DECODING._replace(withdrawn_thumbnail_s=31.0), "31.0 s"),
        (DECODING._replace(withdrawn_add_s=float("inf")), "inf s"),
        (DECODING._replace(decode_statuses={"0": 3, "200": 21}), "['0']"),
        (DECODING._replace(decode_statuses={"500": 1}), "['500']"),
    ):
        (found,) = worse.faults
        assert fault in found
