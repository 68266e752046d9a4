"""Metrics of the service for Prometheus: one registry per application.

The process that answers HTTP is the only one that counts: workers tell it what they did with
their answers. So the figures are right whatever the number of worker processes is, and
prometheus-client's files for many processes are not needed. What is a state rather than a count
is read when it is asked for: see `aladin_service.http.state_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """Counters, gauges and histograms of one application."""

    def __init__(self) -> None:
        # The creation time of each series is not needed, and would make up a third of a scrape.
        disable_created_metrics()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # processor time, files and age of this process
        self._requests = Counter(
            "aladin_http_requests",
            "Answered requests.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._request_s = Histogram(
            "aladin_http_request_duration_seconds",
            "Time from a request's headers to the end of its answer.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._rejected = Counter(
            "aladin_rejected_requests",
            "Requests rejected for overload, by error code.",
            ("reason",),
            registry=self.registry,
        )
        self._deaths = Counter(
            "aladin_worker_deaths",
            "Workers that ended unexpectedly.",
            registry=self.registry,
        )
        self._restarts = Counter(
            "aladin_worker_restarts",
            "Workers started to replace one that ended.",
            registry=self.registry,
        )
        self._engine_s = Histogram(
            "aladin_engine_call_duration_seconds",
            "Time of calls of the vector database, including retries.",
            ("operation",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._engine_errors = Counter(
            "aladin_engine_errors",
            "Failed calls of the vector database: unavailable, or rejected by it.",
            ("reason",),
            registry=self.registry,
        )
        self._add_search_metrics()
        # All label values are set from the start: the rate of a counter that only appears with its
        # first event misses that event.
        for reason in REJECTIONS:
            self._rejected.labels(reason)
        for reason in get_args(CallError):
            self._engine_errors.labels(reason)

    def _add_search_metrics(self) -> None:
        stage_s = Histogram(
            "aladin_search_stage_duration_seconds",
            "Time of a search by stage; total includes waiting.",
            ("stage",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._degraded = Counter(
            "aladin_degraded_answers",
            "Search answers without something that was requested.",
            ("reason",),
            registry=self.registry,
        )
        judged = Counter(
            "aladin_judged_answers",
            "Calibrated answers, by whether anything matches.",
            ("result",),
            registry=self.registry,
        )
        cache = Counter(
            "aladin_encoding_cache_lookups",
            "Encoded queries, by whether the encoding was cached.",
            ("result",),
            registry=self.registry,
        )
        batch = Histogram(
            "aladin_batch_size",
            "Queries per batch of a worker.",
            ("lane",),
            buckets=_SIZES,
            registry=self.registry,
        )
        waiting = Gauge(
            "aladin_queue_depth",
            "Queries waiting for a worker.",
            ("lane",),
            registry=self.registry,
        )
        # Looking up a label costs more than counting.
        self._stage_s = {stage: stage_s.labels(stage) for stage in STAGES}
        self._batch = {queue: batch.labels(queue) for queue in QUEUE_NAMES}
        self._waiting = {queue: waiting.labels(queue) for queue in QUEUE_NAMES}
        self._match, self._no_match = judged.labels("match"), judged.labels("no_match")
        self._hits, self._misses = cache.labels("hit"), cache.labels("miss")

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered.

        By the template of its route, never a path: each value is a series of its own.
        """
        known = method if method in METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._request_s.labels(known, route).observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count a request that was refused because of overload."""
        self._rejected.labels(reason).inc()

    def answered(self, queue: QueueName, answered: Answered) -> None:
        """Count a search."""
        took_ms = answered.took_ms
        self._stage_s["queue"].observe(answered.queue_ms / 1000)
        self._stage_s["decode"].observe(took_ms.decode / 1000)
        self._stage_s["encode"].observe(took_ms.encode / 1000)
        self._stage_s["retrieve"].observe(took_ms.retrieve / 1000)
        self._stage_s["rerank"].observe(took_ms.rerank / 1000)
        self._stage_s["total"].observe(took_ms.total / 1000)
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
        """Count a worker that ended unexpectedly."""
        self._deaths.inc()

    def worker_restarted(self) -> None:
        """Count a worker that was started to replace one that ended."""
        self._restarts.inc()

    def render(self) -> bytes:
        """Render all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
