"""Cost of HTTP and batching, capacity of the service, and behaviour at twice the load.

    python -m benchmarks.service.http_load [--index INDEX | --text-encoder NAME] [--json] [--quick]

The service, the load generator and the measured pipeline run in separate processes of this machine
and share its processors. The cache of encoded queries is disabled.

overhead_p50_ms     median latency of one query at a time over HTTP, minus that of the same query
                    encoded, retrieved and re-ranked in another process; measured in turn, so that
                    other load slows both
overhead_own_p50_ms the same, minus the time of the stages that the responses report
overhead_outside_p50_ms  time outside of these stages over HTTP, minus that in the other process
saturation_ratio    queries per second of the service in a closed loop, divided by those of the same
                    pipeline called in a loop; each with its best parameters (numbers of workers and
                    clients, batch sizes; numbers of processes and threads)
overload_p99_ratio  99th percentile of the accepted queries of an open loop at twice the measured
                    capacity, from their planned times, divided by the median of one query at a time
rejected_at_once    share of the queries that were not accepted that was answered with 429 and
                    Retry-After within 50 ms of the planned time
memory_ratio        memory of the service after the overload, divided by that before
"""

from __future__ import annotations

import base64
import os
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aladin_service.search.job import PhotoQuery, TextQuery
from aladin_service.settings import ServiceSettings
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.served_index import SIZES, ServiceQueries, find_served_index, read_queries
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.load_client import ClosedLoop, OpenLoop, run_load, search_request
from benchmarks.service.pipeline import (
    AskedQueries,
    PipelineRun,
    measure_overhead,
    measure_pipeline,
    open_worker,
)

_AT_ONCE_MS = 50.0
_TEXTS = 4000


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Durations and variants of the measurements.

    Attributes:
        single: Number of queries sent one at a time.
        seconds: Seconds of each closed loop, and of each batch size of the pipeline.
        overload_s: Duration of the open loop.
        workers: Numbers of workers of the service.
        service_batches: Largest batch sizes of the service.
        clients: Numbers of clients of the closed loops.
        pipelines: Numbers of processes and threads of the pipeline.
        batches: Batch sizes of the pipeline.
    """

    single: int = 300
    seconds: float = 5.0
    overload_s: float = 30.0
    workers: tuple[int, ...] = (1, 2)
    service_batches: tuple[int, ...] = (8, 16)
    clients: tuple[int, ...] = (8, 16, 32, 48)
    pipelines: tuple[tuple[int, int], ...] = ((1, 1), (1, 2), (2, 1))
    batches: tuple[int, ...] = (1, 4, 8, 16, 32)


QUICK = Effort(
    single=20,
    seconds=0.4,
    overload_s=0.5,
    workers=(1,),
    service_batches=(8,),
    clients=(8,),
    pipelines=((1, 1),),
    batches=(8,),
)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Queries per second in one of the measured variants, which `how` describes."""

    how: str
    per_s: float


@dataclass(kw_only=True)
class Figures:
    """Measured values; see the docstring of the module."""

    index: str
    cpus: int
    overhead_p50_ms: float = 0.0
    overhead_own_p50_ms: float = 0.0
    overhead_outside_p50_ms: float = 0.0
    single_p50_ms: float = 0.0
    pipeline_p50_ms: float = 0.0
    photo_overhead_p50_ms: float = 0.0
    photo_single_p50_ms: float = 0.0
    saturation_ratio: float = 0.0
    service_per_s: float = 0.0
    pipeline_per_s: float = 0.0
    photo_saturation_ratio: float = 0.0
    overload_per_s: float = 0.0
    overload_p99_ratio: float = 0.0
    accepted: int = 0
    accepted_p50_ms: float = 0.0
    accepted_p99_ms: float = 0.0
    rejected: int = 0
    rejected_at_once: float = 0.0
    rejection_p99_ms: float = 0.0
    other_failures: int = 0
    memory_start_bytes: int = 0
    memory_end_bytes: int = 0
    memory_ratio: float = 0.0
    service_rates: list[Rate] = field(default_factory=list[Rate])
    pipeline_rates: list[Rate] = field(default_factory=list[Rate])
    photo_service_rates: list[Rate] = field(default_factory=list[Rate])
    photo_pipeline_rates: list[Rate] = field(default_factory=list[Rate])


class _Service(ServiceProcess):
    """A service without a query cache."""

    def __init__(self, index: Path, workers: int, max_batch: int | None = None) -> None:
        settings = {"ALADIN_QUERY_CACHE_BYTES": "0"}
        if max_batch is not None:
            settings["ALADIN_MAX_BATCH"] = str(max_batch)
        super().__init__(index, ["--workers", str(workers), "--warm"], settings)


def measure(index: Path, effort: Effort) -> Figures:
    """Run all measurements."""
    figures = Figures(index=str(index), cpus=os.cpu_count() or 1)
    queries = read_queries(index)
    texts, photos = _text_queries(queries), _photo_queries(queries)
    settings = ServiceSettings(query_cache_bytes=0)
    with _Service(index, 1) as service, closing(open_worker(index, settings)) as worker:
        text = measure_overhead(service.port, worker, texts, effort.single)
        photo = measure_overhead(service.port, worker, photos, effort.single)
    figures.single_p50_ms, figures.pipeline_p50_ms = text.http_ms, text.direct_ms
    figures.overhead_p50_ms = text.http_ms - text.direct_ms
    figures.overhead_own_p50_ms = text.http_ms - text.own_ms
    figures.overhead_outside_p50_ms = text.outside_ms
    figures.photo_single_p50_ms = photo.http_ms
    figures.photo_overhead_p50_ms = photo.http_ms - photo.direct_ms

    best: tuple[float, int, int] = (0.0, 1, 8)
    for workers in effort.workers:
        for max_batch in effort.service_batches:
            with _Service(index, workers, max_batch) as service:
                rates = _closed_loops(service, texts.requests, effort, workers, max_batch)
                figures.service_rates += rates
                best = max(best, (max(rate.per_s for rate in rates), workers, max_batch))
                if max_batch == effort.service_batches[0]:
                    photo_rates = _closed_loops(
                        service, photos.requests, effort, workers, max_batch
                    )
                    figures.photo_service_rates += photo_rates
    figures.pipeline_rates = _pipeline_rates(index, settings, texts, effort)
    figures.photo_pipeline_rates = _pipeline_rates(index, settings, photos, effort)
    figures.service_per_s = _most(figures.service_rates)
    figures.pipeline_per_s = _most(figures.pipeline_rates)
    figures.saturation_ratio = figures.service_per_s / figures.pipeline_per_s
    figures.photo_saturation_ratio = _most(figures.photo_service_rates) / _most(
        figures.photo_pipeline_rates
    )
    _overload(index, texts, figures, effort, workers=best[1], max_batch=best[2])
    return figures


def _text_queries(queries: ServiceQueries) -> AskedQueries:
    texts = queries.new_texts(_TEXTS)
    return AskedQueries(
        requests=[search_request("images", {"text": text}) for text in texts],
        queries=[TextQuery(text) for text in texts],
    )


def _photo_queries(queries: ServiceQueries) -> AskedQueries:
    encoded = [base64.b64encode(photo).decode() for photo in queries.photos]
    return AskedQueries(
        requests=[search_request("images", {"image": photo}) for photo in encoded],
        queries=[PhotoQuery(photo) for photo in queries.photos],
    )


def _closed_loops(
    service: ServiceProcess, requests: list[bytes], effort: Effort, workers: int, max_batch: int
) -> list[Rate]:
    run_load(ClosedLoop(service.url, requests, effort.seconds / 5, clients=8))  # to warm up
    rates: list[Rate] = []
    for clients in effort.clients:
        result = run_load(ClosedLoop(service.url, requests, effort.seconds, clients=clients))
        p50, p99 = np.percentile(result.latency_ms[result.ok], (50, 99))
        how = (
            f"workers {workers}, batches up to {max_batch}, {clients} clients: "
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {(~result.ok).mean():.1%} rejected"
        )
        rates.append(Rate(how=how, per_s=result.ok_per_s))
    return rates


def _pipeline_rates(
    index: Path, settings: ServiceSettings, asked: AskedQueries, effort: Effort
) -> list[Rate]:
    rates: list[Rate] = []
    for processes, threads in effort.pipelines:
        run = PipelineRun(
            index=index,
            settings=settings,
            queries=asked.queries,
            processes=processes,
            threads=threads,
            batches=effort.batches,
            seconds=effort.seconds,
        )
        for size, per_s in measure_pipeline(run).items():
            how = f"{processes} processes of {threads} threads, batches of {size}"
            rates.append(Rate(how=how, per_s=per_s))
    return rates


def _overload(
    index: Path, asked: AskedQueries, figures: Figures, effort: Effort, workers: int, max_batch: int
) -> None:
    """Send twice the load that the service can handle."""
    with _Service(index, workers, max_batch) as service:
        run_load(ClosedLoop(service.url, asked.requests, effort.seconds, clients=8))
        alone = run_load(ClosedLoop(service.url, asked.requests, effort.seconds, clients=1))
        unloaded_ms = float(np.median(alone.latency_ms))
        figures.overload_per_s = 2 * figures.service_per_s
        plan = OpenLoop(service.url, asked.requests, effort.overload_s, figures.overload_per_s)
        # Only a service that has been overloaded once has allocated all its buffers.
        run_load(OpenLoop(service.url, asked.requests, effort.seconds, figures.overload_per_s))
        figures.memory_start_bytes = service.memory().pss
        result = run_load(plan)
        figures.memory_end_bytes = service.memory().pss
    took_ms, refused = result.latency_ms, (result.status == 429) & result.retry_after
    accepted_ms = took_ms[result.ok]
    figures.accepted, figures.rejected = int(result.ok.sum()), int(refused.sum())
    figures.other_failures = len(result.status) - figures.accepted - figures.rejected
    figures.accepted_p50_ms, figures.accepted_p99_ms = map(
        float, np.percentile(accepted_ms, (50, 99))
    )
    figures.overload_p99_ratio = figures.accepted_p99_ms / unloaded_ms
    others = ~result.ok
    if others.any():
        figures.rejected_at_once = float((refused & (took_ms < _AT_ONCE_MS))[others].mean())
        figures.rejection_p99_ms = float(np.percentile(took_ms[others], 99))
    figures.memory_ratio = figures.memory_end_bytes / figures.memory_start_bytes


def _most(rates: list[Rate]) -> float:
    return max(rate.per_s for rate in rates)


def print_rates(figures: dict[str, Any]) -> None:
    """Print the rate of each variant."""
    for name in ("service", "pipeline", "photo_service", "photo_pipeline"):
        print(f"\n{name.replace('_', 's, ')}: queries per second")
        for rate in figures[f"{name}_rates"]:
            print(f"{rate['per_s']:8.1f}  {rate['how']}")


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "some seconds, with a smaller index")
    parser.add_argument("--index", type=Path, help="index to serve; default: a synthetic one")
    parser.add_argument(
        "--text-encoder",
        choices=list(SIZES),
        default="bert-base",
        help="text encoder whose size the synthetic index uses; default: bert-base, ALADIN's own",
    )
    options = parser.parse_args()
    index = find_served_index(options.index, quick=options.quick, text_encoder=options.text_encoder)
    figures = asdict(measure(index, QUICK if options.quick else Effort()))
    print_figures(figures, as_json=options.json)
    if not options.json:
        print_rates(figures)


if __name__ == "__main__":
    main()
