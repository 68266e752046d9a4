"""Replaces generations under load: no response may fail or mix two generations.

    python -m benchmarks.service.swap [--swaps 100] [--queries 50000] [--workers 2] [--quick]
    [--json]

Starts `aladin serve`, which another process searches without a pause while new generations are
published: with other items, with another tuning, with an added item compacted, and by a rollback.
After every fifth of them a broken generation is published, which the service has to reject.

    queries         queries sent
    swaps           valid generations published
    failed          responses with a status other than 200, and missing responses
    mixed           responses whose hits differ from those that an independent reader finds in the
                    generation that the response names
    stale           requests sent after a generation was live, but answered from the previous one
    broken          invalid generations published; none may answer a query
    not_reported    of those, generations that /readyz did not report within ten seconds
    p50_ms, p99_ms  latency of the queries
    memory_*_bytes  memory of all processes of the service, shared pages counted once
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.processes import wait_until
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.load_client import ClosedLoop, LoadResult, search_request, start_load
from benchmarks.service.swap_index import HITS, SwapIndex, some_texts

_CLIENTS = 4
# Longer than any run, which ends with its last query.
_LONGEST_S = 3600.0
_REPORT_S = 10.0
# Maximum time between two swaps.
_PROGRESS_S = 60.0
_LOOK_S = 0.02
# Number of valid generations between two broken ones.
_BROKEN_AFTER = 5
# No query is rejected because of overload, so every failure counts. In bfloat16, a score depends on
# the texts that are encoded in the same batch, so it could differ from that of every generation.
_SETTINGS = {"ALADIN_MAX_WAIT_MS": "60000", "ALADIN_QUERY_PRECISION": "float32"}


class Figures(NamedTuple):
    """Figures to print; see the docstring of the module."""

    queries: int
    swaps: int
    failed: int
    mixed: int
    stale: int
    broken: int
    not_reported: int
    seconds: float
    p50_ms: float
    p99_ms: float
    generations_seen: int
    memory_before_bytes: int
    memory_after_bytes: int


def measure(swaps: int, queries: int, workers: int) -> Figures:
    """Replace generations under load.

    Args:
        swaps: Number of valid generations to publish.
        queries: Number of queries of the load.
        workers: Number of workers of the service.
    """
    texts = some_texts()
    requests = [search_request("images", {"text": text, "k": HITS}) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        index = SwapIndex(Path(folder) / "index", texts)
        with ServiceProcess(index.root, ["--workers", str(workers)], _SETTINGS) as service:
            before = service.memory().pss
            plan = ClosedLoop(
                service.url, requests, _LONGEST_S, clients=_CLIENTS, most=queries, keep=True
            )
            with start_load(plan) as load:
                swapper = _Swapper(index, service, texts[0])
                swapper.run(swaps, queries)
                result = load.result()
            after = service.memory().pss
        return _figures(index, swapper, result, before, after)


class _Swapper:
    """Publishes generations one after the other, in step with the load.

    Attributes:
        swaps: Number of valid generations that were published.
        stale: Number of answers from a generation that was no longer live when they were requested.
        broken: Number of invalid generations that were published.
        not_reported: Number of those that the service did not report in time.
    """

    def __init__(self, index: SwapIndex, service: ServiceProcess, text: str) -> None:
        self._index = index
        self._service = service
        self._search = {"text": text, "k": 1}
        self.swaps = self.stale = self.broken = self.not_reported = 0

    def run(self, swaps: int, queries: int) -> None:
        """Publish generations, spread over the queries."""
        kinds = [
            self._index.rebuild,
            self._index.tune,
            lambda: self._index.add_and_compact(self._service),
            self._index.roll_back,
        ]
        while self.swaps < swaps:
            self._wait_for_answers(queries * self.swaps / (swaps + 1))
            kinds[self.swaps % len(kinds)]()
            self._index.learn()
            self.swaps += 1
            answer = self._ask("POST", "/v1/search/images", self._search)
            self.stale += answer.get("generation") != self._index.generation
            if self.swaps % _BROKEN_AFTER == 0:
                self._publish_broken()

    def _publish_broken(self) -> None:
        valid = self._index.publish_broken()
        self.broken += 1
        self.not_reported += not wait_until(
            lambda: bool(self._ask("GET", "/readyz").get("refused")), _REPORT_S, _LOOK_S
        )
        self._index.repair(valid)

    def _wait_for_answers(self, count: float) -> None:
        """Wait until the service has answered a number of requests, with a timeout."""
        wait_until(lambda: self._service.num_answered() >= count, _PROGRESS_S, _LOOK_S)

    def _ask(self, method: str, path: str, fields: Any = None) -> dict[str, Any]:
        return json.loads(self._service.ask(method, path, fields)[1])


def _figures(
    index: SwapIndex, swapper: _Swapper, result: LoadResult, before: int, after: int
) -> Figures:
    mixed, generations = 0, set[int]()
    for place, answer in zip(result.request.tolist(), result.answers, strict=True):
        if answer is not None and answer.status == 200:
            content = json.loads(answer.body)
            generations.add(content["generation"])
            mixed += not index.is_correct(place, content)
    latency_ms = result.latency_ms
    return Figures(
        queries=len(result.status),
        swaps=swapper.swaps,
        failed=int((result.status != 200).sum()),
        mixed=mixed,
        stale=swapper.stale,
        broken=swapper.broken,
        not_reported=swapper.not_reported,
        seconds=round(float(result.ended_s.max()), 1),
        p50_ms=round(float(np.percentile(latency_ms, 50)), 2),
        p99_ms=round(float(np.percentile(latency_ms, 99)), 2),
        generations_seen=len(generations),
        memory_before_bytes=before,
        memory_after_bytes=after,
    )


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "6 swaps, 3000 queries")
    parser.add_argument("--swaps", type=int, default=100, help="valid generations to publish")
    parser.add_argument("--queries", type=int, default=50_000, help="queries to send meanwhile")
    parser.add_argument("--workers", type=int, default=2, help="workers of the service")
    options = parser.parse_args()
    swaps, queries = (6, 3000) if options.quick else (options.swaps, options.queries)
    figures = measure(swaps, queries, options.workers)._asdict()
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
