"""The balancer's configuration, and the balancer before replicas that are lost."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aladin_service.http.access.control import NEEDED
from tests.docker.compose_files import DOCKER

START_S = 20.0
# Of a search: the first one and `retries`.
TRIES = 4
QUESTION = json.dumps({"text": "a dog"}).encode()

# A replica as the balancer sees it: ready, and what it does with a request says the path's end.
REPLICA = """
import http.server, json, sys, time

class Replica(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = 0

    def do_GET(self):
        if self.path == "/readyz":
            self.answer(200, {})
        elif self.path == "/seen":
            self.answer(200, {"seen": Replica.seen})

    def do_POST(self):
        Replica.seen += 1
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/hang-up"):
            self.close_connection = True
        elif self.path.endswith("/busy"):
            self.answer(503, {"error": {"code": "worker_died"}})
        elif self.path.endswith("/slowly"):
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in (b"5\\r\\nfirst\\r\\n", b"4\\r\\nlast\\r\\n0\\r\\n\\r\\n"):
                self.wfile.write(piece)
                self.wfile.flush()
                time.sleep(1)
        else:
            time.sleep(0.01)
            known = {name.lower(): value for name, value in self.headers.items()}
            self.answer(200, {"replica": port, "bytes": len(body), "headers": known})

    def answer(self, status, tree):
        said = json.dumps(tree)
        head = f"HTTP/1.1 {status} .\\r\\ncontent-length: {len(said)}\\r\\n\\r\\n"
        self.wfile.write((head + said).encode())  # at once: it has not begun, or it is whole

    def log_message(self, *_):
        pass

port = int(sys.argv[1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Replica).serve_forever()
"""


class Answer(NamedTuple):
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def tree(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


class Site(NamedTuple):
    """A balancer and its replicas, by their ports."""

    port: int
    replicas: dict[int, subprocess.Popen[bytes]]

    def ask(
        self, path: str, body: bytes | None = QUESTION, port: int | None = None, **headers: str
    ) -> Answer:
        """Send a request, with a body as POST; headers with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET" if body is None else "POST", path, body, given)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def seen(self) -> int:
        """Return how many requests with a body came to all replicas that run."""
        running = [port for port, process in self.replicas.items() if process.poll() is None]
        return sum(self.ask("/seen", None, port).tree["seen"] for port in running)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def running(*command: str, **variables: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a program with further environment variables until the end."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | variables,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def replaced(text: str, old: str, new: str) -> str:
    """Put something else in the place of the one line that has it."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.fixture(scope="module")
def haproxy() -> str:
    """The program."""
    found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if found is None:
        pytest.skip("haproxy is not installed")
    return found


@pytest.fixture
def site(haproxy: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Three replicas behind the balancer as it is configured, but for the addresses.

    A parameter is the rate of a client; without one it is never reached.
    """
    rate = str(getattr(request, "param", 100_000))
    ports = [free_port() for _ in range(3)]
    own = free_port()
    text = (DOCKER / "haproxy" / "haproxy.cfg").read_text(encoding="utf-8")
    text = replaced(text, "bind :8000", f"bind 127.0.0.1:{own}")
    text = replaced(text, " resolvers names init-addr none", "")
    servers = "\n    ".join(f"server replica{port} 127.0.0.1:{port}" for port in ports)
    text = replaced(text, "server-template replica 10 service:8000", servers)
    file = tmp_path / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    with ExitStack() as stack:
        replicas = {
            port: stack.enter_context(running(sys.executable, "-I", "-c", REPLICA, str(port)))
            for port in ports
        }
        made = Site(own, replicas)
        stack.enter_context(running(haproxy, "-db", "-f", str(file), CLIENT_REQUESTS_PER_S=rate))
        deadline_s = time.monotonic() + START_S
        while not _all_asked(made):
            assert time.monotonic() < deadline_s, "the replicas are not all found"
            time.sleep(0.1)
        yield made


def _all_asked(site: Site) -> bool:
    """Whether the balancer has every replica answer."""
    try:
        answers = [site.ask("/page/ready") for _ in range(6)]  # not counted
    except OSError:
        return False
    return {one.tree["replica"] for one in answers if one.status == 200} == set(site.replicas)


def test_the_configuration_is_valid(haproxy: str) -> None:
    file = DOCKER / "haproxy" / "haproxy.cfg"
    checked = subprocess.run(
        [haproxy, "-c", "-f", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CLIENT_REQUESTS_PER_S": "50"},
    )
    assert checked.returncode == 0, checked.stderr
    assert "warning" not in checked.stderr.lower()


def test_writes_alone_are_not_repeated() -> None:
    text = (DOCKER / "haproxy" / "haproxy.cfg").read_text(encoding="utf-8")
    rule = re.search(
        r"disable-l7-retry if \{ path_beg (\S+) \} !\{ method ([A-Z ]+) \}$", text, re.MULTILINE
    )
    assert rule is not None
    path, methods = rule[1], rule[2].split()
    for row in NEEDED:
        kept = row.path.startswith(path) and row.method not in methods
        assert kept == (row.scope == "write"), row


@pytest.mark.cluster
def test_replicas_are_killed_and_no_search_fails(site: Site) -> None:
    answers: list[Answer] = []
    first, second, last = site.replicas
    stop = threading.Event()

    def search() -> None:
        while not stop.is_set():
            answers.append(site.ask("/v1/search/images"))

    clients = [threading.Thread(target=search) for _ in range(6)]
    for client in clients:
        client.start()
    for port in (first, second):
        time.sleep(0.7)
        site.replicas[port].kill()
    time.sleep(2.5)
    stop.set()
    for client in clients:
        client.join(timeout=30)
        assert not client.is_alive()
    assert {answer.status for answer in answers} == {200}
    by_replica = [answer.tree["replica"] for answer in answers]
    assert set(by_replica) == {first, second, last}
    assert set(by_replica[-20:]) == {last}


@pytest.mark.cluster
def test_a_search_without_an_answer_is_asked_of_others_a_write_of_none_and_all_is_passed_on(
    site: Site,
) -> None:
    for path, status, tries in (
        ("items/images/hang-up", 502, 1),
        ("search/hang-up", 502, TRIES),  # all of them hang up here
        ("items/images/busy", 503, 1),
        ("search/busy", 503, TRIES),
    ):
        before = site.seen()
        answer = site.ask(f"/v1/{path}")
        assert answer.status == status, path
        assert site.seen() - before == tries, path
    assert answer.tree["error"]["code"] == "worker_died"  # what the last one says
    # Addresses are the balancer's to tell, and requests have a number.
    headers = site.ask("/v1/search/images", x_forwarded_for="10.1.2.3").tree["headers"]
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert re.fullmatch(r"[A-Za-z0-9._-]{20,64}", headers["x-request-id"])
    own = site.ask("/v1/search/images", x_request_id="mine-7")
    assert own.tree["headers"]["x-request-id"] == "mine-7"
    # Bodies and answers are passed on as they come.
    photo = bytes(5 * 2**20)
    assert site.ask("/v1/search/images", photo).tree["bytes"] == len(photo)
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    started_s = time.monotonic()
    connection.request("POST", "/v1/search/slowly", QUESTION)
    response = connection.getresponse()
    assert response.read(5) == b"first"
    first_s = time.monotonic() - started_s
    assert response.read() == b"last"
    assert time.monotonic() - started_s - first_s > 0.3
    connection.close()


@pytest.mark.cluster
@pytest.mark.parametrize("site", [2], indirect=True)
def test_a_client_above_its_rate_is_refused_before_any_replica(site: Site) -> None:
    answers = [site.ask("/v1/search/images") for _ in range(23)]
    assert [answer.status for answer in answers] == [200] * 20 + [429] * 3
    refused = answers[-1]
    assert refused.headers["content-type"] == "application/json"
    assert refused.headers["retry-after"] == "10"
    assert refused.tree["error"]["code"] == "rate_limited"
    assert {one.tree["replica"] for one in answers[:20]} == set(site.replicas)
    assert site.ask("/page/page.js").status == 200  # files of the page are not counted


@pytest.mark.cluster
def test_without_a_replica_the_balancer_says_so_in_the_services_form(site: Site) -> None:
    for process in site.replicas.values():
        process.kill()
    deadline_s = time.monotonic() + START_S
    while (answer := site.ask("/v1/search/images")).status != 503:
        assert time.monotonic() < deadline_s
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["retry-after"] == "1"
    error = answer.tree["error"]
    assert error["code"] == "no_replica_ready"
    assert set(error) == {"code", "message", "request_id"}
    assert re.fullmatch(r"[0-9a-f-]{36}", error["request_id"])
