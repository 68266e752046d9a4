"""What the service counts, for Prometheus: one registry an application."""

from __future__ import annotations

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.work.search_job import Answered

# Who waits together: texts and photos are encoded apart, the rest is not encoded at all.
Lane = Literal["text", "photo", "encoded"]

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters, gauges and histograms of one application."""

    def __init__(self) -> None:
        """Count from nothing."""
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "aladin_requests", "Requests.", ("method", "route", "status"), registry=self.registry
        )
        self._request_s = Histogram(
            "aladin_request_seconds",
            "Time from the request to its answer.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._stage_s = Histogram(
            "aladin_stage_seconds",
            "Time of a search by stage.",
            ("stage",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._degraded = Counter(
            "aladin_degraded_answers",
            "Answers without something that was asked for.",
            ("what",),
            registry=self.registry,
        )
        self._batch = Histogram(
            "aladin_batch_size",
            "Queries that are encoded together.",
            ("lane",),
            buckets=_SIZES,
            registry=self.registry,
        )
        self._waiting = Gauge(
            "aladin_waiting_queries", "Queries that wait.", ("lane",), registry=self.registry
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, str(status)).inc()
        self._request_s.labels(method, route).observe(seconds)

    def answered(self, answered: Answered) -> None:
        """Count a search by its stages."""
        took_ms = answered.took_ms
        for stage in ("decode", "encode", "retrieve", "rerank"):
            self._stage_s.labels(stage).observe(getattr(took_ms, stage) / 1000)
        for what in answered.degraded:
            self._degraded.labels(what).inc()

    def batch(self, lane: Lane, size: int) -> None:
        """Count queries that go to a worker together."""
        self._batch.labels(lane).observe(size)

    def waiting(self, lane: Lane, count: int) -> None:
        """Say how many queries wait now."""
        self._waiting.labels(lane).set(count)

    def render(self) -> bytes:
        """Write all in Prometheus' text form."""
        return generate_latest(self.registry)
