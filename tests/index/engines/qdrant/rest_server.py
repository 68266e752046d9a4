"""A server with Qdrant's REST interface over its client's local mode, for tests.

It knows the requests that this project makes, keeps a list of them, and can be told to fail.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel, TypeAdapter
from qdrant_client import QdrantClient, models

# What the local mode answers, where a server is asked for what only it has.
_COMPLETED = {"status": "completed", "operation_id": 1}


class Fault(NamedTuple):
    """What a request gets in the place of an answer.

    Attributes:
        status: of HTTP; None: the connection is closed without one.
        wait_s: before that.
        headers: besides.
    """

    status: int | None
    wait_s: float = 0.0
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed


class Request(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]
    size_bytes: int
    api_key: str | None


@dataclass
class RestServer:
    """What the handlers of all connections share.

    Attributes:
        requests: that came, also those that got a fault.
        faults: of the next requests, in order.
        states: that a collection is in when it is next asked for, in order; then "green".
        change_status: of the answer to changes of points.
        url: of the server.
    """

    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    change_status: str = "completed"
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    engine: QdrantClient = field(
        default_factory=lambda: QdrantClient(":memory:", force_disable_check_same_thread=True)
    )

    def named(self, method: str, ending: str) -> list[Request]:
        """Return the requests of a method whose paths end like this."""
        return [
            each for each in self.requests if each.method == method and each.path.endswith(ending)
        ]

    def answer(self, request: Request) -> object:
        """Do what was asked, as the local mode does it."""
        method, body, engine = request.method, request.body, self.engine
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        if method == "GET" and parts == ["collections"]:
            return engine.get_collections()
        if method == "GET" and parts == ["aliases"]:
            return engine.get_aliases()
        if method == "POST" and parts == ["collections", "aliases"]:
            return engine.update_collection_aliases(
                models.ChangeAliasesOperation.model_validate(body).actions
            )
        _, name, *rest = parts
        if not rest:
            return self._collection(method, name, body)
        if method == "GET" and rest == ["exists"]:
            return {"exists": engine.collection_exists(name)}
        if method == "PUT" and rest == ["index"]:
            return _COMPLETED
        assert rest[0] == "points"
        return self._points(method, name, "/".join(rest[1:]), body)

    def _collection(self, method: str, name: str, body: dict[str, Any]) -> object:
        if method == "PUT":
            wanted = models.CreateCollection.model_validate(body)
            return self.engine.create_collection(name, wanted.vectors)
        if method == "DELETE":
            return self.engine.delete_collection(name)
        if method == "PATCH":
            models.UpdateCollection.model_validate(body)
            return True
        state = self.states.pop(0) if self.states else "green"
        described = self.engine.get_collection(name).model_dump(mode="json")
        return described | {"status": state, "optimizer_status": {"error": "a broken disk"}}

    def _points(self, method: str, name: str, what: str, body: dict[str, Any]) -> object:
        engine = self.engine
        if method == "PUT":
            engine.upsert(name, models.PointsList.model_validate(body).points)
            return _COMPLETED | {"status": self.change_status}
        if what == "delete":
            engine.delete(name, models.PointIdsList.model_validate(body))
            return _COMPLETED | {"status": self.change_status}
        if what == "count":
            return engine.count(name)
        if what == "query/batch":
            searches = TypeAdapter(list[models.QueryRequest]).validate_python(body["searches"])
            for search in searches:
                assert search.params is not None or search.prefetch is not None
                search.params = None  # of graphs, which the local mode does not have
                if isinstance(search.prefetch, models.Prefetch):
                    search.prefetch.params = None
            return engine.query_batch_points(name, searches)
        if what == "scroll":
            asked = models.ScrollRequest.model_validate(body)
            points, beyond = engine.scroll(
                name, limit=asked.limit or 10, offset=asked.offset, with_payload=asked.with_payload
            )
            return models.ScrollResult(points=points, next_page_offset=beyond)
        wanted = models.PointRequest.model_validate(body)
        return engine.retrieve(
            name, wanted.ids, wanted.with_payload or False, wanted.with_vector or False
        )


@contextmanager
def rest_server() -> Generator[RestServer]:
    """Run a server on a free port, and end it."""
    state = RestServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            body = json.loads(self.rfile.read(length) or b"{}")
            request = Request(
                self.command, parts.path, query, body, length, self.headers.get("api-key")
            )
            with state.lock:
                state.requests.append(request)
                fault = state.faults.pop(0) if state.faults else None
            if fault is not None:
                time.sleep(fault.wait_s)
                if fault.status is None:
                    self.close_connection = True
                    return
                self._send(fault.status, {"status": {"error": "told to fail"}}, fault.headers)
                return
            try:
                with state.lock:
                    result = _plain(state.answer(request))
            except ValueError as error:
                self._send(404, {"status": {"error": str(error)}}, {})
                return
            self._send(200, {"result": result, "status": "ok", "time": 0.0}, {})

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        def _send(self, status: int, answer: object, headers: dict[str, str]) -> None:
            content = json.dumps(answer).encode()
            try:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            except OSError:  # the client has stopped waiting
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        state.engine.close()


def _plain(result: object) -> object:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json")
    if isinstance(result, list):
        return [_plain(each) for each in result]
    return result
