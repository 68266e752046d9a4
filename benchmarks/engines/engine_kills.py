"""Kills a vector database and the replicas of the service under load.

    python -m benchmarks.engines.engine_kills [--kills 20] [--replicas 3] [--quick] [--json]

An index is pushed to a real Milvus server, and several replicas of `aladin serve` search it.
Clients search without a pause and use the replicas in turn, as a load balancer does: if one does
not respond or responds with 503, the next one is tried. Another client adds photos. The database
and the replicas are killed with SIGKILL alternately and started again, as a service manager does;
nothing else intervenes. The next kill follows when every replica is ready and has answered a
search.

    kills_engine       kills of the database
    kills_replica      kills of replicas
    correct            searches answered with the hits and scores of the index in files
    wrong              searches answered with anything else without reporting it; must be 0
    degraded           correct answers of the first stage alone that are reported as such
    rejected           searches that every replica rejected with 503 and Retry-After
    failed             searches with another response, or with none from any replica; must be 0
    acknowledged       photos whose addition was acknowledged
    lost               acknowledged photos still missing ten seconds after the end; must be 0
    not_recovered      kills after which a replica was not ready within two minutes
    recover_engine_s   time to recover from a kill of the database, median and maximum
    recover_replica_s  time to recover from a kill of a replica, median and maximum
    unexpected         wrong and failed answers, at most ten
"""

from __future__ import annotations

import http.client
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

from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from aladin_index.generations.reader import open_index
from aladin_index.open import connect
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import TextQuery
from aladin_service.settings import QueryLimits
from benchmarks.lib.milvus_server import MilvusServer
from benchmarks.lib.output import figures_parser, median_and_most, print_figures
from benchmarks.lib.processes import wait_until
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.lib.small_collection import photo_fields, random_png
from benchmarks.service.swap_index import HITS, SwapIndex, some_texts

_CLIENTS = 4
_LONGEST_S, _LOOK_S, _QUIET_S, _PAUSE_S = 120.0, 0.05, 2.0, 0.02
_ANSWER_S = 30.0
# Twice the delay after which every replica finds what another one has added.
_VISIBLE_S = 10.0
# Minimum value of Retry-After.
_RETRY_S = 1.0
_SHOWN_ANSWERS = 10
# The index in files is searched with float32 here: in bfloat16, scores differ in the last digits.
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
        self.correct = self.wrong = self.degraded = self.rejected = self.failed = 0
        self.acknowledged: list[str] = []
        self.unexpected: list[str] = []

    def count(self, *names: str, unexpected: str | None = None) -> None:
        """Count one request.

        Args:
            names: Names of the counters to increase.
            unexpected: Answer to be shown, or None if it is an expected one.
        """
        with self._lock:
            for name in names:
                setattr(self, name, getattr(self, name) + 1)
            if unexpected is not None and len(self.unexpected) < _SHOWN_ANSWERS:
                self.unexpected.append(unexpected)


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
        location = EngineLocation(url=server.url, name="kills")
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
        lost = _missing(service, counts.acknowledged)
    return {
        "kills_engine": (kills + 1) // 2,
        "kills_replica": kills // 2,
        "correct": counts.correct,
        "wrong": counts.wrong,
        "degraded": counts.degraded,
        "rejected": counts.rejected,
        "failed": counts.failed,
        "acknowledged": len(counts.acknowledged),
        "lost": len(lost),
        "not_recovered": kills - sum(map(len, recovered)),
        "recover_engine_s": median_and_most(recovered[0]),
        "recover_replica_s": median_and_most(recovered[1]),
        "unexpected": counts.unexpected,
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
    def all_answer() -> bool:
        return all(
            replica.is_ready() and _search(replica, "dogs run")[0] == 200
            for replica in service.running
        )

    return wait_until(all_answer, _LONGEST_S, _LOOK_S)


def _first_stage(index: SwapIndex, texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the IDs that the first stage alone finds for each text."""
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
        status, body = 0, b""
        for _ in range(len(service.running)):
            replica = service.running[turn % len(service.running)]
            status, body = _search(replica, texts[query])
            if status not in (0, 503):
                break
            turn += 1
        if status == 200:
            answer = json.loads(body)
            found = [hit["id"] for hit in answer["hits"]]
            if "rerank_unavailable" in answer["degraded"] and found == unranked[texts[query]]:
                counts.count("correct", "degraded")
            elif not answer["degraded"] and index.is_correct(query, answer):
                counts.count("correct")
            else:
                counts.count("wrong", unexpected=body.decode()[:300])
        elif status == 503:
            counts.count("rejected")
            time.sleep(_RETRY_S)
        else:
            counts.count("failed", unexpected=f"{status} {body.decode()[:300]}")
        time.sleep(_PAUSE_S)


def _search(replica: ServiceProcess, text: str) -> tuple[int, bytes]:
    """Search once; the status is 0 if there was no response."""
    return _ask(replica, "POST", "/v1/search/images", {"text": text, "k": HITS, "filter": _FILTER})


def _add_on(service: _Replicas, counts: _Counts, stop: threading.Event) -> None:
    random = np.random.default_rng(0)
    for number in itertools.count():
        if stop.is_set():
            return
        item = photo_fields(f"added {number}", random_png(random, 32))
        replica = service.running[number % len(service.running)]
        status, body = _ask(replica, "POST", "/v1/items/images", item)
        if status == 201 and json.loads(body)["added"] == [item["id"]]:
            counts.acknowledged.append(item["id"])
        time.sleep(_PAUSE_S)


def _missing(service: _Replicas, ids: Sequence[str]) -> list[str]:
    """Return the ids of the photos that a replica does not find, however long it is asked.

    A photo added by another replica is found after the delay that Milvus permits, see
    `aladin_index.engines.connection`.
    """
    missing = list(ids)

    def none_is_missing() -> bool:
        missing[:] = [item_id for item_id in missing if not _is_there(service, item_id)]
        return not missing

    wait_until(none_is_missing, _VISIBLE_S, _LOOK_S)
    return missing


def _is_there(service: _Replicas, item_id: str) -> bool:
    path = f"/v1/items/images/{urllib.parse.quote(item_id)}"
    return _ask(service.running[0], "GET", path)[0] == 200


def _ask(replica: ServiceProcess, method: str, path: str, fields: Any = None) -> tuple[int, bytes]:
    """Send one request; the status is 0 if there was no response."""
    try:
        return replica.ask(method, path, fields, timeout_s=_ANSWER_S)
    except (OSError, http.client.HTTPException):
        return 0, b""


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "2 kills, 2 replicas")
    parser.add_argument(
        "--kills", type=int, default=20, help="kills of the database and of replicas"
    )
    parser.add_argument("--replicas", type=int, default=3, help="replicas of the service")
    options = parser.parse_args()
    if options.quick:
        figures = kill_engine_and_replicas(2, 2)
    else:
        figures = kill_engine_and_replicas(options.kills, options.replicas)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
