"""Kills a vector database and the replicas of the service under load.

    python -m benchmarks.engines.engine_kills [--kills 20] [--replicas 3] [--quick] [--json]

An index is pushed to a real Milvus server, and `aladin serve` runs as several replicas before it.
Clients search all the time, from replica to replica as a balancer sends them: where one does not
answer, or says 503, the next is asked. One more client adds photos. Then the engine and the
replicas get SIGKILL in turns, and are started again as a service manager does it; nothing else is
done. A kill is over when every replica is ready and has answered a search.

    kills_engine, kills_replica
    right              searches answered with the hits and scores of the index of files
    wrong              searches answered with anything else and no word of it: must be 0
    degraded           of the right ones, those that say that they are of the first stage alone,
                       and are what that says
    refused            searches that every replica refused with 503 and Retry-After
    failed             searches with any other answer, or none of any replica: must be 0
    acknowledged       photos whose addition was answered with success
    lost               of those, photos that are not there at the end: must be 0
    not_recovered      kills after which a replica was not ready again within two minutes
    recover_engine_s, recover_replica_s   from the kill on, median and most
"""

from __future__ import annotations

import base64
import http.client
import io
import itertools
import json
import os
import signal
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from aladin_index.generations.reader import open_index
from aladin_index.open import connect
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import TextQuery
from aladin_service.settings import QueryLimits
from benchmarks.lib.measuring import figures_parser, print_figures
from benchmarks.lib.milvus_server import MilvusServer
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.swap_index import HITS, SwapIndex, some_texts

_CLIENTS = 4
_LONGEST_S, _LOOK_S, _QUIET_S, _PAUSE_S = 120.0, 0.05, 2.0, 0.02
_ANSWER_S = 30.0
# Minimum value of Retry-After.
_REFUSED_S = 1.0
# Float32, as the index in files is searched here: in bfloat16, scores differ in their last digits.
_SETTINGS = {"ALADIN_QUERY_PRECISION": "float32"}
# Added photos lack this field, so the results do not depend on them.
_FILTER = {"build": 1}


class _Replicas:
    """The replicas behind a load balancer; a killed one is started again."""

    def __init__(self, index: Path, count: int, stack: ExitStack) -> None:
        self._index = index
        self._stack = stack
        self.running = [self._start() for _ in range(count)]

    def _start(self) -> ServiceProcess:
        return self._stack.enter_context(ServiceProcess(self._index, settings=_SETTINGS))

    def kill(self, number: int) -> None:
        """Kill a replica and start a replacement; returns when that is ready."""
        for pid in self.running[number].pids():
            os.kill(pid, signal.SIGKILL)
        self.running[number].process.wait()
        self.running[number] = self._start()


class _Counts:
    """Outcomes of all requests; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.right = self.wrong = self.degraded = self.refused = self.failed = 0
        self.acknowledged: list[str] = []
        self.odd: list[str] = []

    def count(self, *names: str, odd: str | None = None) -> None:
        """Count one request."""
        with self._lock:
            for name in names:
                setattr(self, name, getattr(self, name) + 1)
            if odd is not None and len(self.odd) < 10:
                self.odd.append(odd)


def kill_engine_and_replicas(kills: int, replicas: int) -> dict[str, Any]:
    """Kill the database and the replicas under load.

    Args:
        kills: Total number of kills.
        replicas: Number of replicas of the service.
    """
    texts = some_texts()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        index = SwapIndex(folder / "index", texts)
        unranked = _first_stage(index, texts)
        server = stack.enter_context(MilvusServer(folder / "milvus"))
        location = EngineLocation(engine="milvus", url=server.url, name="kills")
        with closing(connect(location)) as client:
            push_index(index.root, folder / "pushed", location, client, PushSettings())
        service = _Replicas(folder / "pushed", replicas, stack)
        counts, stop = _Counts(), threading.Event()
        clients = [
            threading.Thread(target=_search_on, args=(service, index, unranked, n, counts, stop))
            for n in range(_CLIENTS)
        ]
        clients.append(threading.Thread(target=_add_on, args=(service, counts, stop)))
        for client in clients:
            client.start()
        try:
            recovered = _kill(server, service, kills)
        finally:
            stop.set()
            for client in clients:
                client.join()
        lost = [item_id for item_id in counts.acknowledged if not _is_there(service, item_id)]
    return {
        "kills_engine": (kills + 1) // 2,
        "kills_replica": kills // 2,
        "right": counts.right,
        "wrong": counts.wrong,
        "degraded": counts.degraded,
        "refused": counts.refused,
        "failed": counts.failed,
        "acknowledged": len(counts.acknowledged),
        "lost": len(lost),
        "not_recovered": kills - sum(map(len, recovered)),
        "recover_engine_s": _median_and_most(recovered[0]),
        "recover_replica_s": _median_and_most(recovered[1]),
        "odd": counts.odd,
    }


def _kill(server: MilvusServer, service: _Replicas, kills: int) -> tuple[list[float], list[float]]:
    """Kill the database and replicas in turn; return the seconds to recover from each kill."""
    recovered: tuple[list[float], list[float]] = ([], [])
    for number in range(kills):
        time.sleep(_QUIET_S)
        killed_s = time.monotonic()
        if number % 2 == 0:
            server.kill()
            server.start()
        else:
            service.kill(number // 2 % len(service.running))
        if _wait_until_all_answer(service):
            recovered[number % 2].append(time.monotonic() - killed_s)
    return recovered


def _wait_until_all_answer(service: _Replicas) -> bool:
    deadline_s = time.monotonic() + _LONGEST_S
    for replica in service.running:
        while not (replica.is_ready() and _search(replica, "dogs run")[0] == 200):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_LOOK_S)
    return True


def _first_stage(index: SwapIndex, texts: Sequence[str]) -> dict[str, list[str]]:
    """Return for each text the IDs that the first stage alone finds."""
    with open_index(index.root) as opened:
        searcher, encoder = TwoStageSearcher(opened), QueryEncoder(QueryLimits())
        options = SearchOptions(k=HITS, rerank=False)
        with closing(encoder):
            encoded = {text: encoder.encode_one(searcher, TextQuery(text)) for text in texts}
        return {
            text: [hit.id for hit in searcher.search(query, "images", options).hits]
            for text, query in encoded.items()
        }


def _search_on(
    service: _Replicas,
    index: SwapIndex,
    unranked: Mapping[str, list[str]],
    first: int,
    counts: _Counts,
    stop: threading.Event,
) -> None:
    texts = list(unranked)
    for turn in itertools.count(first):
        if stop.is_set():
            return
        query = turn % len(texts)
        status, said = 0, b""
        for _ in range(len(service.running)):
            replica = service.running[turn % len(service.running)]
            status, said = _search(replica, texts[query])
            if status not in (0, 503):
                break
            turn += 1
        if status == 200:
            answer = json.loads(said)
            found = [hit["id"] for hit in answer["hits"]]
            if "rerank_unavailable" in answer["degraded"] and found == unranked[texts[query]]:
                counts.count("right", "degraded")
            elif not answer["degraded"] and index.is_right(query, answer):
                counts.count("right")
            else:
                counts.count("wrong", odd=said.decode()[:300])
        elif status == 503:
            counts.count("refused")
            time.sleep(_REFUSED_S)
        else:
            counts.count("failed", odd=f"{status} {said.decode()[:300]}")
        time.sleep(_PAUSE_S)


def _search(replica: ServiceProcess, text: str) -> tuple[int, bytes]:
    """Search once; the status is 0 if there was no answer."""
    return _ask(replica, "POST", "/v1/search/images", {"text": text, "k": HITS, "filter": _FILTER})


def _add_on(service: _Replicas, counts: _Counts, stop: threading.Event) -> None:
    random = np.random.default_rng(0)
    for number in itertools.count():
        if stop.is_set():
            return
        pixels = random.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        item = {"id": f"added {number}", "image": base64.b64encode(file.getvalue()).decode()}
        replica = service.running[number % len(service.running)]
        status, said = _ask(replica, "POST", "/v1/items/images", item)
        if status == 201 and json.loads(said)["added"] == [item["id"]]:
            counts.acknowledged.append(item["id"])
        time.sleep(_PAUSE_S)


def _is_there(service: _Replicas, item_id: str) -> bool:
    path = f"/v1/items/images/{urllib.parse.quote(item_id)}"
    return _ask(service.running[0], "GET", path)[0] == 200


def _ask(replica: ServiceProcess, method: str, path: str, fields: Any = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", replica.port, timeout=_ANSWER_S)
    try:
        body = None if fields is None else json.dumps(fields)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def _median_and_most(values: list[float]) -> list[float]:
    return [round(float(np.median(values)), 1), round(max(values), 1)] if values else []


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "2 kills, 2 replicas")
    parser.add_argument("--kills", type=int, default=20, help="of the engine and of replicas")
    parser.add_argument("--replicas", type=int, default=3, help="of the service")
    options = parser.parse_args()
    if options.quick:
        figures = kill_engine_and_replicas(2, 2)
    else:
        figures = kill_engine_and_replicas(options.kills, options.replicas)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
