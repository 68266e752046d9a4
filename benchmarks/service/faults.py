"""Worker processes killed under load, and a full disk.

    python -m benchmarks.service.faults [--kills 20] [--quick] [--json]

Kills: `aladin serve --workers 2` is searched by 16 clients while one of its worker processes gets
SIGKILL, again and again.

    kills            workers killed
    readiness_told   kills of which /readyz told, until another worker took jobs
    answered         requests that were answered with 200
    unanswered       requests without any answer
    failed_running   requests that the killed worker ran: 503, code worker_died, with Retry-After
    failed_waiting   all other requests that failed, which none may: what no worker had begun waits
                     for another one
    told_ms          from a kill to /readyz saying so, median and most
    recover_ms       from a kill until all workers take jobs again, median and most

Full disk: see `benchmarks.service.full_disk`.
"""

from __future__ import annotations

import http.client
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.measuring import figures_parser, print_figures
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.full_disk import fill_and_add
from benchmarks.service.load_client import ClosedLoop, LoadResult, search_request, start_load
from benchmarks.service.swap_index import HITS, SwapIndex, some_texts

_WORKERS, _CLIENTS = 2, 16
_MAX_BATCH, _QUERY_THREADS = 4, 1
# Load before the kill, and in total: a worker has recovered well before the end.
_BEFORE_S, _LOAD_S = 0.5, 4.0
_LOOK_S, _LONGEST_S = 0.002, 60.0
_SETTINGS = {
    "ALADIN_MAX_BATCH": str(_MAX_BATCH),
    "ALADIN_QUERY_THREADS": str(_QUERY_THREADS),
    "ALADIN_MAX_WAIT_MS": "60000",  # nothing is refused for lack of room
}


class _Kills:
    """Accumulates the effects of the kills."""

    def __init__(self) -> None:
        self.kills = self.readiness_told = 0
        self.answered = self.unanswered = self.failed_running = self.failed_waiting = 0
        self.told_ms: list[float] = []
        self.recover_ms: list[float] = []

    def add(self, result: LoadResult) -> None:
        """Count the requests around one kill."""
        running = waiting = 0
        for status, retry_after, answer in zip(
            result.status.tolist(), result.retry_after.tolist(), result.answers, strict=True
        ):
            died = answer is not None and status == 503 and b'"worker_died"' in answer.body
            running += died and retry_after
            waiting += status not in (0, 200) and not (died and retry_after)
        # At most as many queries as one worker runs at a time.
        most = _MAX_BATCH * _QUERY_THREADS
        self.failed_running += min(running, most)
        self.failed_waiting += waiting + max(0, running - most)
        self.answered += int((result.status == 200).sum())
        self.unanswered += int((result.status == 0).sum())

    def figures(self) -> dict[str, Any]:
        """Return the figures to print."""
        counts = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return counts | {
            "told_ms": _median_and_most(self.told_ms),
            "recover_ms": _median_and_most(self.recover_ms),
        }


def kill_workers(kills: int) -> dict[str, Any]:
    """Kill worker processes under load.

    Args:
        kills: Number of kills.
    """
    texts = some_texts()
    requests = [search_request("images", {"text": text, "k": HITS}) for text in texts]
    counts = _Kills()
    with tempfile.TemporaryDirectory() as folder:
        index = SwapIndex(Path(folder) / "index", texts)
        arguments = ["--workers", str(_WORKERS)]
        with ServiceProcess(index.root, arguments, _SETTINGS) as service:
            for number in range(kills):
                plan = ClosedLoop(service.url, requests, _LOAD_S, clients=_CLIENTS, keep=True)
                with start_load(plan) as load:
                    _kill_one(service, number, counts)
                    counts.add(load.result())
    return counts.figures()


def _kill_one(service: ServiceProcess, number: int, counts: _Kills) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=_LONGEST_S)
    _wait_for_load(service)
    workers = worker_pids(service)
    os.kill(workers[number % len(workers)], signal.SIGKILL)
    killed_s = time.perf_counter()
    counts.kills += 1
    if _wait_for_status(connection, 503):
        counts.readiness_told += 1
        counts.told_ms.append(1000 * (time.perf_counter() - killed_s))
    if _wait_for_status(connection, 200):
        counts.recover_ms.append(1000 * (time.perf_counter() - killed_s))
    connection.close()


def worker_pids(service: ServiceProcess) -> list[int]:
    """Return the worker processes of a service, which the fork server has started."""
    forks = [pid for pid in service.pids() if b"multiprocessing.forkserver" in _command(pid)]
    return sorted(forks)[1:]  # the server itself is older than those


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def _wait_for_load(service: ServiceProcess) -> None:
    """Wait until the load has started, and then for a short time."""
    before = service.num_answered("/v1/search")
    deadline_s = time.monotonic() + _LONGEST_S
    while service.num_answered("/v1/search") < before + _CLIENTS and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
    time.sleep(_BEFORE_S)


def _wait_for_status(connection: http.client.HTTPConnection, status: int) -> bool:
    """Poll /readyz until it responds with a status; return whether it did in time."""
    deadline_s = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline_s:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        answer.read()
        if answer.status == status:
            return True
        time.sleep(_LOOK_S)
    return False


def _median_and_most(values: list[float]) -> list[float]:
    return [round(float(np.median(values)), 1), round(max(values), 1)] if values else []


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "2 kills")
    parser.add_argument("--kills", type=int, default=20, help="of workers")
    options = parser.parse_args()
    figures = kill_workers(2 if options.quick else options.kills)
    figures["full_disk"] = fill_and_add()
    print_figures(figures, as_json=options.json)
    if not options.json:
        print("\nfull disk")
        print_figures(figures["full_disk"], as_json=False)


if __name__ == "__main__":
    main()
