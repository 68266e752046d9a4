"""Metrics of the service for Prometheus: one registry per application.

The process that answers HTTP is the only one that counts: workers tell it what they did with
their answers. So the figures are right whatever the number of worker processes is, and
prometheus-client's files for many processes are not needed. What is a state rather than a count
is read when it is asked for: see `aladin_service.http.state_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from aladin_index.engines.guard import CallError, EngineCall
from aladin_service.search.job import QUEUE_NAMES, Answered, QueueName

# Stages of a search, in order; "queue" lasts from the request until a slot takes it.
STAGES = ("queue", "decode", "encode", "retrieve", "rerank", "total")
# Reasons for refusing a valid request: codes of errors with status 429.
REJECTIONS = ("overloaded", "rate_limited")

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)

# Other methods are counted as "other": a client may invent any number of methods.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    def __init__(self) -> None:
        # The creation time of each series is not needed, and would make up a third of a scrape.
        disable_created_metrics()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # processor time, files and age of this process
        self._requests = self._counter(
            "http_requests", "Answered requests.", "method", "route", "status"
        )
        self._request_s = self._histogram(
            "http_request_duration_seconds",
            "Time from a request's headers to the end of its answer.",
            "method",
            "route",
        )
        self._rejected = self._counter(
            "rejected_requests", "Requests rejected for overload, by error code.", "reason"
        )
        self._deaths = self._counter("worker_deaths", "Workers that ended unexpectedly.")
        self._restarts = self._counter(
            "worker_restarts", "Workers started to replace one that ended."
        )
        self._engine_s = self._histogram(
            "engine_call_duration_seconds",
            "Time of calls of the vector database, including retries.",
            "operation",
        )
        self._engine_errors = self._counter(
            "engine_errors",
            "Failed calls of the vector database: unavailable, or rejected by it.",
            "reason",
        )
        self._degraded = self._counter(
            "degraded_answers", "Search answers without something that was requested.", "reason"
        )
        judged = self._counter(
            "judged_answers", "Calibrated answers, by whether anything matches.", "result"
        )
        cache = self._counter(
            "encoding_cache_lookups",
            "Encoded queries, by whether the encoding was cached.",
            "result",
        )
        stage_s = self._histogram(
            "search_stage_duration_seconds",
            "Time of a search by stage; total includes waiting.",
            "stage",
        )
        batch = self._histogram(
            "batch_size", "Queries per batch of a worker.", "lane", buckets=_SIZES
        )
        waiting = Gauge(
            "aladin_queue_depth",
            "Queries waiting for a worker.",
            ("lane",),
            registry=self.registry,
        )
        # All label values are set from the start: the rate of a counter that only appears with its
        # first event misses that event. Looking up a label costs more than counting.
        for reason in REJECTIONS:
            self._rejected.labels(reason)
        for reason in get_args(CallError):
            self._engine_errors.labels(reason)
        self._stage_s = {stage: stage_s.labels(stage) for stage in STAGES}
        self._batch = {queue: batch.labels(queue) for queue in QUEUE_NAMES}
        self._waiting = {queue: waiting.labels(queue) for queue in QUEUE_NAMES}
        self._match, self._no_match = judged.labels("match"), judged.labels("no_match")
        self._hits, self._misses = cache.labels("hit"), cache.labels("miss")

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"aladin_{name}", description, labels, registry=self.registry)

    def _histogram(
        self, name: str, description: str, *labels: str, buckets: Sequence[float] = _SECONDS
    ) -> Histogram:
        name = f"aladin_{name}"
        return Histogram(name, description, labels, buckets=buckets, registry=self.registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered.

        By the template of its route, never a path: each value is a series of its own.
        """
        known = method if method in METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._request_s.labels(known, route).observe(seconds)

    def rejected(self, reason: str) -> None:
        self._rejected.labels(reason).inc()

    def answered(self, queue: QueueName, answered: Answered) -> None:
        stage_s, took_ms = self._stage_s, answered.took_ms
        stage_s["queue"].observe(answered.queue_ms / 1000)
        for stage in STAGES[1:]:
            stage_s[stage].observe(getattr(took_ms, stage) / 1000)
        for reason in answered.degraded:
            self._degraded.labels(reason).inc()
        if answered.no_match is not None:
            (self._no_match if answered.no_match else self._match).inc()
        if queue != "encoded":
            (self._hits if answered.cached else self._misses).inc()

    def batch(self, queue: QueueName, size: int) -> None:
        """Count queries that are sent to a worker together."""
        self._batch[queue].observe(size)

    def watch_queue(self, queue: QueueName, depth: Callable[[], int]) -> None:
        """Read the number of waiting queries of a queue at each scrape."""
        self._waiting[queue].set_function(depth)

    def engine_call(self, call: EngineCall) -> None:
        """Count a call of the vector database; thread-safe."""
        self._engine_s.labels(call.operation).observe(call.seconds)
        if call.error is not None:
            self._engine_errors.labels(call.error).inc()

    def worker_died(self) -> None:
        self._deaths.inc()

    def worker_restarted(self) -> None:
        self._restarts.inc()

    def render(self) -> bytes:
        return generate_latest(self.registry)
