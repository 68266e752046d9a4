"""Hostile requests against the service, and the counts of its answers.

The attacks are attempts to read files outside the index, to occupy all connections by requests that
are never completed, and uploads of broken pictures as queries and as new items.
"""

from __future__ import annotations

import base64
import http.client
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import httpx

from benchmarks.lib.broken_images import BrokenImage, broken_images

# A response that takes longer counts as none.
PATIENCE_S = 30.0

_ROUTES = ("/v1/images/{}", "/v1/items/images/{}", "/v1/items/texts/{}", "/v1/items/{}/a", "/{}")
_ASSETS = ("/static/{}", "/page/{}", "/docs/{}")

_HELD = 520  # more than a service has by default
_HALF_HEAD = b"GET /v1/index HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_HALF_BODY = (
    b"POST /v1/search/images HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"text": "a d'
)
# Only Linux lets a program of this machine use any address of 127.0.0.0/8.
_CLIENT_ADDRESSES = (
    ("127.0.0.1", "127.0.0.2", "127.0.0.3") if sys.platform == "linux" else ("127.0.0.1",)
)

_UPLOADERS = 4
# Items of pictures that turn out to be valid replace each other, so that the index, and the memory
# that it may take, does not grow.
_ITEMS = 50


class Fault(NamedTuple):
    """A violation of the expected behaviour.

    Attributes:
        kind: Kind of the fault, for example server_error, hang, undocumented or leak.
        asked: Description of the request that caused it.
        answer: Description of the service's response.
    """

    kind: str
    asked: str
    answer: str


class Answers:
    """Counts responses and collects faults; thread-safe."""

    def __init__(self) -> None:
        """Create an empty counter."""
        self.statuses: dict[str, Counter[int]] = {}
        self.faults: list[Fault] = []
        self._lock = threading.Lock()

    def answered(self, group: str, status: int, asked: str, body: bytes) -> None:
        """Count a response; any status of 500 or more is a fault, 503 included.

        Nothing here overloads the service or stops it, so there is no good reason for one.
        """
        with self._lock:
            self.statuses.setdefault(group, Counter())[status] += 1
        if status >= 500:
            self.fault("server_error", asked, f"{status} {body[:300]!r}")

    def fault(self, kind: str, asked: str, answer: str) -> None:
        """Record a fault."""
        with self._lock:
            self.faults.append(Fault(kind, asked, answer))

    def count(self, kind: str) -> int:
        """Return the number of faults of a kind."""
        return sum(fault.kind == kind for fault in self.faults)


def send_paths(port: int, canary: Path, index: Path, answers: Answers) -> int:
    """Request a file outside the index, and a non-photo in it, in all spellings.

    Args:
        port: Port of the service on 127.0.0.1.
        canary: Existing file whose content must not appear in any response.
        index: Folder of the served index; its manifests name the same things on every route.
        answers: Counter of the responses; one that contains the file's content is a fault.

    Returns:
        The number of requests.
    """
    secret = canary.read_bytes()
    sent = 0
    for path in _paths(canary, index):
        received = exchange(port, "paths", path, partial(_get_verbatim, path), answers)
        if received is not None:
            status, body = received
            if secret in body or b'"generation_dir"' in body:
                answers.fault("leak", path, f"{status} {body[:100]!r}")
        sent += 1
    return sent


def _get_verbatim(path: str, connection: http.client.HTTPConnection) -> None:
    """Request a path as it is; other clients remove ".." from it."""
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.endheaders()


def exchange(
    port: int,
    group: str,
    asked: str,
    send: Callable[[http.client.HTTPConnection], None],
    answers: Answers,
    *,
    timeout_s: float = PATIENCE_S,
) -> tuple[int, bytes] | None:
    """Send one request over a new connection, and count its response or a fault.

    Args:
        port: Port of the service on 127.0.0.1.
        group: Group that the response is counted in.
        asked: Description of the request, for faults.
        send: Function that sends the request.
        answers: Counter of the responses.
        timeout_s: Seconds after which a missing response is a hang.

    Returns:
        Status and body of the response, or None if there was none.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        send(connection)
        answer = connection.getresponse()
        body = answer.read()
    except (http.client.InvalidURL, ValueError) as error:  # HTTP cannot represent the request
        answers.answered(group, 0, asked, repr(error).encode())
    except TimeoutError:
        answers.fault("hang", asked, f"no response in {timeout_s:g} s")
    except (http.client.HTTPException, OSError) as error:
        answers.fault("server_error", asked, repr(error))
    else:
        answers.answered(group, answer.status, asked, body)
        return answer.status, body
    finally:
        connection.close()
    return None


def _paths(canary: Path, index: Path) -> Iterator[str]:
    absolute = str(canary)
    inside = f"{index.name}/CURRENT"
    names = [absolute, absolute[1:], f"file://{absolute}", canary.name, inside, "CURRENT"]
    names += [
        f"{'../' * ups}{target}" for ups in range(1, 9) for target in (absolute[1:], canary.name)
    ]
    names += [f"photos/{'../' * ups}{canary.name}" for ups in range(1, 5)]
    names += [f"a/../..{absolute}", f"....//....//{canary.name}", f"..\\..\\{canary.name}"]
    names += [f"{absolute}\0.png", f"{absolute}%00.png", f"~/{canary.name}", f"{absolute}/.", "/"]
    for name in names:
        once = quote(name, safe="")
        spellings = (
            quote(name, safe="/:~"),
            once,
            quote(once, safe=""),
            once.replace("%2F", "/").replace(".", "%2e"),
            once.replace(".", "%c0%ae").replace("%2F", "%c0%af"),
        )
        for spelling in dict.fromkeys(spellings):
            for route in (*_ROUTES, *_ASSETS):
                yield route.format(spelling)
                if route.startswith("/v1/images"):
                    yield route.format(spelling) + "?size=64"


_PROBES, _PROBE_EVERY_S = 20, 0.1


def send_held_connections(port: int, answers: Answers, *, held: int = _HELD) -> int:
    """Hold connections with half a head, then half a body, while requesting /healthz.

    The connections come from one address, then from three, as many from each of them.

    Args:
        port: Port of the service on 127.0.0.1.
        answers: Counts the answers to /healthz. Anything but 200 is a fault.
        held: Connections that are open at the same time.

    Returns:
        The number of connections that were held.
    """
    sent = 0
    for part in (_HALF_HEAD, _HALF_BODY):
        for clients in (_CLIENT_ADDRESSES[:1], _CLIENT_ADDRESSES):
            with ExitStack() as stack:
                for number in range(held):
                    source = (clients[number % len(clients)], 0)
                    connection = stack.enter_context(
                        socket.create_connection(("127.0.0.1", port), PATIENCE_S, source)
                    )
                    connection.sendall(part)
                    sent += 1
                for _ in range(_PROBES):
                    asked = f"/healthz beside {held} connections with {part[:4]!r}..."
                    exchange(port, "probes", asked, partial(_get_verbatim, "/healthz"), answers)
                    time.sleep(_PROBE_EVERY_S)
    return sent


def send_images(url: str, count: int, answers: Answers, *, seed: int = 0) -> int:
    """Upload broken pictures, each as a query and as a new item.

    Args:
        url: URL of the service.
        count: Number of pictures.
        answers: Counter of the responses.
        seed: Seed; different seeds give different pictures.

    Returns:
        The number of pictures.
    """
    limits = httpx.Limits(max_connections=_UPLOADERS)
    with (
        httpx.Client(base_url=url, timeout=PATIENCE_S, limits=limits, trust_env=False) as client,
        ThreadPoolExecutor(_UPLOADERS) as clients,
    ):

        def upload(numbered: tuple[int, BrokenImage]) -> None:
            number, image = numbered
            _send(client, _search(client, number, image), "search", image, answers)
            _send(client, _addition(client, number, image), "add", image, answers)

        # In small steps, because otherwise all pictures would be in memory before the first was
        # sent.
        pictures = enumerate(broken_images(count, seed))
        for step in iter(lambda: [item for item, _ in zip(pictures, range(64), strict=False)], []):
            list(clients.map(upload, step))
    return count


def _search(client: httpx.Client, number: int, image: BrokenImage) -> httpx.Request:
    target = "images" if number % 2 else "texts"
    if number % 3:
        return client.build_request(
            "POST", f"/v1/search/{target}", files={"image": ("a", image.data)}, data={"k": "2"}
        )
    fields = {"image": base64.b64encode(image.data).decode(), "k": 2}
    return client.build_request("POST", f"/v1/search/{target}", json=fields)


def _addition(client: httpx.Client, number: int, image: BrokenImage) -> httpx.Request:
    fields = {"id": f"hostile/{number % _ITEMS}"}
    params = {"on_duplicate": "replace"}
    if number % 3:
        files = {"image": ("a", image.data)}
        return client.build_request(
            "POST", "/v1/items/images", params=params, files=files, data=fields
        )
    fields["image"] = base64.b64encode(image.data).decode()
    return client.build_request("POST", "/v1/items/images", params=params, json=fields)


def _send(
    client: httpx.Client, request: httpx.Request, group: str, image: BrokenImage, answers: Answers
) -> None:
    asked = f"{group} {image.name}"
    try:
        answer = client.send(request)
    except httpx.TimeoutException:
        answers.fault("hang", asked, f"no response in {PATIENCE_S:g} s")
    except httpx.TransportError as error:
        answers.fault("server_error", asked, repr(error))
    else:
        answers.answered(group, answer.status_code, asked, answer.content)
