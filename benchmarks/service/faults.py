"""Worker processes killed under load, and a full disk.

    python -m benchmarks.service.faults [--kills 20] [--quick] [--json]

Kills: 16 clients search `aladin serve --workers 2` while its worker processes are killed with
SIGKILL, one after the other.

    kills            workers killed
    reported         kills that /readyz reported with 503 until a replacement took jobs
    answered         requests answered with 200
    unanswered       requests without a response
    failed_running   requests that the killed worker was processing: 503 with code worker_died and
                     Retry-After
    failed_waiting   other failed requests; must be 0, because jobs that no worker has begun wait
                     for another worker
    report_ms        time from a kill until /readyz reports it, median and maximum
    recover_ms       time from a kill until all workers take jobs again, median and maximum

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

from benchmarks.lib.output import figures_parser, median_and_most, print_figures
from benchmarks.lib.processes import wait_until
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.full_disk import fill_and_add
from benchmarks.service.load_client import ClosedLoop, LoadResult, search_request, start_load
from benchmarks.service.swap_index import HITS, SwapIndex, some_texts

_WORKERS, _CLIENTS = 2, 16
_MAX_BATCH, _QUERY_THREADS = 4, 1
# Seconds of load before the kill, and in total: a worker has recovered well before the end.
_BEFORE_S, _LOAD_S = 0.5, 4.0
_LOOK_S, _LONGEST_S = 0.002, 60.0
_SETTINGS = {
    "ALADIN_MAX_BATCH": str(_MAX_BATCH),
    "ALADIN_QUERY_THREADS": str(_QUERY_THREADS),
    "ALADIN_MAX_WAIT_MS": "60000",  # no query is rejected because of overload
}


class _Kills:
    """Accumulates the effects of the kills."""

    def __init__(self) -> None:
        self.kills = self.reported = 0
        self.answered = self.unanswered = self.failed_running = self.failed_waiting = 0
        self.report_ms: list[float] = []
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
            "report_ms": median_and_most(self.report_ms),
            "recover_ms": median_and_most(self.recover_ms),
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
        counts.reported += 1
        counts.report_ms.append(1000 * (time.perf_counter() - killed_s))
    if _wait_for_status(connection, 200):
        counts.recover_ms.append(1000 * (time.perf_counter() - killed_s))
    connection.close()


def worker_pids(service: ServiceProcess) -> list[int]:
    """Return the worker processes of a service, which its fork server has started."""
    forks = [pid for pid in service.pids() if b"multiprocessing.forkserver" in _command(pid)]
    return sorted(forks)[1:]  # the first one is the fork server


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # the process has ended
        return b""


def _wait_for_load(service: ServiceProcess) -> None:
    """Wait until the load has started, and then for a short time."""
    enough = service.num_answered("/v1/search") + _CLIENTS
    wait_until(lambda: service.num_answered("/v1/search") >= enough, _LONGEST_S, _LOOK_S)
    time.sleep(_BEFORE_S)


def _wait_for_status(connection: http.client.HTTPConnection, status: int) -> bool:
    """Poll /readyz until it responds with a status; return whether it did in time."""

    def has_status() -> bool:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        answer.read()
        return answer.status == status

    return wait_until(has_status, _LONGEST_S, _LOOK_S)


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "2 kills")
    parser.add_argument("--kills", type=int, default=20, help="workers to kill")
    options = parser.parse_args()
    figures = kill_workers(2 if options.quick else options.kills)
    figures["full_disk"] = fill_and_add()
    print_figures(figures, as_json=options.json)
    if not options.json:
        print("\nfull disk")
        print_figures(figures["full_disk"], as_json=False)


if __name__ == "__main__":
    main()
