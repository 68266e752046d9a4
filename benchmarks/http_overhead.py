"""What HTTP costs a query that has the service to itself."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.pipeline import answer_batch
from benchmarks.timing import time_in_turn
from service.queries import Query
from service.work.worker import Worker

_PARTS = ("decode", "encode", "retrieve", "rerank")


@dataclass(frozen=True, kw_only=True)
class AskedQueries:
    """The same queries for the service and for the pipeline."""

    requests: list[bytes]
    queries: list[Query]


class Overhead(NamedTuple):
    """Median milliseconds of one query at a time.

    Attributes:
        http_ms: from the request to the whole answer.
        direct_ms: of the same queries, answered in this process.
        own_ms: of the parts that the answers over HTTP tell of.
    """

    http_ms: float
    direct_ms: float
    own_ms: float


def measure_overhead(port: int, worker: Worker, asked: AskedQueries, turns: int) -> Overhead:
    """Ask the service and this process in turn, so that a busy machine slows both.

    Args:
        port: of the service, on this machine.
        worker: of the same index, in this process.
        asked: one after the other, and from the first one again.
        turns: that are measured.
    """
    own_ms: list[float] = []
    with closing(_Connection(port)) as connection:

        def over_http(turn: int) -> None:
            took = connection.ask(asked.requests[turn % len(asked.requests)])["took_ms"]
            own_ms.append(sum(took[part] for part in _PARTS))

        def directly(turn: int) -> None:
            answer_batch(worker, [asked.queries[turn % len(asked.queries)]])

        times = time_in_turn({"http": over_http, "direct": directly}, turns)
    http_ms, direct_ms = (float(np.median(times[name])) for name in ("http", "direct"))
    return Overhead(http_ms, direct_ms, float(np.median(own_ms[-turns:])))


class _Connection:
    """Asks over a socket, with nothing around it that takes time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def ask(self, request: bytes) -> dict[str, Any]:
        """Return an answer."""
        self._socket.sendall(request)
        status, length = int(self._file.readline()[9:12]), 0
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = self._file.read(length)
        if status != 200:
            raise SystemExit(f"expected 200, got {status}: {body[:500]!r}")
        return json.loads(body)

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()
