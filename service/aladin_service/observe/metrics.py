"""What the service counts, for Prometheus: one registry an application.

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
from aladin_service.search.job import Answered, QueueName

# Of a search, in their order; "queue" is from the request to when a slot takes it.
STAGES = ("queue", "decode", "encode", "retrieve", "rerank", "total")
# Why a request was refused though nothing was wrong with it: codes of errors with status 429.
REJECTIONS = ("overloaded", "rate_limited")

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)

# What is not one of these is counted as "other": a client may invent methods without end.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """Counters, gauges and histograms of one application."""

    def __init__(self) -> None:
        """Count from nothing."""
        # When each series began is of no use to anybody here, and a third of a scrape.
        disable_created_metrics()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # processor time, files and age of this process
        self._requests = Counter(
            "aladin_http_requests",
            "Requests that were answered.",
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
            "Requests that were refused for lack of room, by the code of the error.",
            ("reason",),
            registry=self.registry,
        )
        self._deaths = Counter(
            "aladin_worker_deaths",
            "Workers that ended though nobody had asked them to.",
            registry=self.registry,
        )
        self._restarts = Counter(
            "aladin_worker_restarts",
            "Workers that were started in the place of one that ended.",
            registry=self.registry,
        )
        self._engine_s = Histogram(
            "aladin_engine_call_duration_seconds",
            "Time of the calls of the engine that keeps the index, further tries included.",
            ("operation",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._engine_errors = Counter(
            "aladin_engine_errors",
            "Calls of the engine without an answer: it was not to be had, or refused.",
            ("reason",),
            registry=self.registry,
        )
        self._counted_alone = Counter(
            "aladin_rates_counted_alone",
            "Requests rate-limited per process because the shared store was unavailable.",
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
            "Time of a search by stage; total is all of it, waiting included.",
            ("stage",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._degraded = Counter(
            "aladin_degraded_answers",
            "Answers to searches that lack something that was asked for.",
            ("reason",),
            registry=self.registry,
        )
        judged = Counter(
            "aladin_judged_answers",
            "Answers that a calibration judged, by whether they say that anything matches.",
            ("result",),
            registry=self.registry,
        )
        cache = Counter(
            "aladin_encoding_cache_lookups",
            "Texts and photos searched for, by whether their encoding was remembered.",
            ("result",),
            registry=self.registry,
        )
        batch = Histogram(
            "aladin_batch_size",
            "Queries that a worker takes together.",
            ("lane",),
            buckets=_SIZES,
            registry=self.registry,
        )
        waiting = Gauge(
            "aladin_queue_depth",
            "Queries that wait for a worker.",
            ("lane",),
            registry=self.registry,
        )
        # Looking up a label costs more than counting.
        queues: tuple[QueueName, ...] = get_args(QueueName)
        self._stage_s = {stage: stage_s.labels(stage) for stage in STAGES}
        self._batch = {queue: batch.labels(queue) for queue in queues}
        self._waiting = {queue: waiting.labels(queue) for queue in queues}
        self._match, self._no_match = judged.labels("match"), judged.labels("no_match")
        self._hits, self._misses = cache.labels("hit"), cache.labels("miss")

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered.

        Args:
            method: of the request.
            route: its template, never a path: each value is a series of its own.
            status: of the answer.
            seconds: that it took.
        """
        known = method if method in METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._request_s.labels(known, route).observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count a request that was refused for lack of room.

        Args:
            reason: the code of the error.
        """
        self._rejected.labels(reason).inc()

    def rate_counted_alone(self) -> None:
        """Count a request whose rate the shared store was not there to count."""
        self._counted_alone.inc()

    def answered(self, queue: QueueName, answered: Answered) -> None:
        """Count a search.

        Args:
            queue: where it waited.
            answered: what became of it.
        """
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
        """Count queries that go to a worker together."""
        self._batch[queue].observe(size)

    def watch_queue(self, queue: QueueName, depth: Callable[[], int]) -> None:
        """Read the number of waiting queries of a queue at each scrape.

        Args:
            queue: Name of the queue.
            depth: Returns the number of waiting queries.
        """
        self._waiting[queue].set_function(depth)

    def engine_call(self, call: EngineCall) -> None:
        """Count a call of the engine; may be called from any thread."""
        self._engine_s.labels(call.operation).observe(call.seconds)
        if call.error is not None:
            self._engine_errors.labels(call.error).inc()

    def worker_died(self) -> None:
        """Count a worker that ended though nobody had asked it to."""
        self._deaths.inc()

    def worker_restarted(self) -> None:
        """Count a worker that was started in the place of one that ended."""
        self._restarts.inc()

    def render(self) -> bytes:
        """Write all in Prometheus' text form."""
        return generate_latest(self.registry)
