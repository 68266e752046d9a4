"""What is counted, value by value."""

from __future__ import annotations

import pytest

from aladin_index.search.results import TookMs
from aladin_service.observe.metrics import STAGES, Metrics
from aladin_service.search.job import Answered


def answered(**changes: object) -> Answered:
    """An answer whose stages took 2, 3, 4, 5 and, with 1 of waiting, 20 ms."""
    took_ms = TookMs(decode=2, encode=3, retrieve=4, rerank=5, total=20)
    whole = Answered(b"{}", 7, (), took_ms, queue_ms=1)
    return whole._replace(**changes)  # pyright: ignore[reportArgumentType]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return one sample; None where there is none."""
    return metrics.registry.get_sample_value(f"aladin_{name}", labels)


def test_requests_are_counted_by_method_route_and_status_and_timed_by_method_and_route() -> None:
    metrics = Metrics()
    for status, seconds in ((200, 0.25), (200, 0.5), (503, 3.0)):
        metrics.request("GET", "/v1/index", status, seconds)
    get = {"method": "GET", "route": "/v1/index"}
    assert value(metrics, "http_requests_total", **get, status="200") == 2
    assert value(metrics, "http_requests_total", **get, status="503") == 1
    duration = "http_request_duration_seconds"
    assert value(metrics, f"{duration}_sum", **get) == 3.75
    counts = [value(metrics, f"{duration}_bucket", **get, le=le) for le in ("0.2", "0.5", "5.0")]
    assert counts == [0, 2, 3]
    for number in range(50):  # methods that clients invent make one series
        metrics.request(f"BREW{number}", "other", 404, 0.001)
    brewed = {"method": "other", "route": "other", "status": "404"}
    assert value(metrics, "http_requests_total", **brewed) == 50
    assert b"BREW" not in metrics.render()


def test_searches_are_timed_by_stage_in_seconds_and_counted_by_what_is_known_of_them() -> None:
    metrics = Metrics()
    # A rate misses the event with which a series begins.
    lookups, judged = "encoding_cache_lookups_total", "judged_answers_total"
    assert value(metrics, lookups, result="hit") == 0
    assert value(metrics, judged, result="no_match") == 0
    metrics.answered("photo", answered(no_match=True))
    metrics.answered("photo", answered(no_match=False, degraded=("rerank", "rerank_timeout")))
    expected_ms = {"queue": 1, "decode": 2, "encode": 3, "retrieve": 4, "rerank": 5, "total": 20}
    name = "search_stage_duration_seconds_sum"
    sums = {stage: value(metrics, name, stage=stage) for stage in STAGES}
    assert sums == {stage: pytest.approx(2 * ms / 1000) for stage, ms in expected_ms.items()}
    metrics.answered("text", answered(cached=True, no_match=True))
    metrics.answered("text", answered(degraded=("rerank_timeout",)))
    metrics.answered("encoded", answered())  # there is nothing to encode
    assert [value(metrics, lookups, result=result) for result in ("hit", "miss")] == [1, 3]
    assert [value(metrics, judged, result=result) for result in ("match", "no_match")] == [1, 2]
    for reason, count in (("rerank", 1), ("rerank_timeout", 2)):
        assert value(metrics, "degraded_answers_total", reason=reason) == count


def test_queues_batches_and_workers_of_one_application() -> None:
    metrics, other = Metrics(), Metrics()
    waiting = [1, 2, 3, 4, 5]
    metrics.watch_queue("text", waiting.__len__)
    assert value(metrics, "queue_depth", lane="text") == 5
    del waiting[3:]
    for size in (4, 2):
        metrics.batch("photo", size)
    metrics.worker_died()
    metrics.worker_restarted()
    metrics.rejected("overloaded")
    for name, labels, count, before in (
        ("queue_depth", {"lane": "text"}, 3, 0),
        ("queue_depth", {"lane": "photo"}, 0, 0),
        ("batch_size_sum", {"lane": "photo"}, 6, 0),
        ("batch_size_count", {"lane": "photo"}, 2, 0),
        ("worker_deaths_total", {}, 1, 0),
        ("worker_restarts_total", {}, 1, 0),
        ("rejected_requests_total", {"reason": "overloaded"}, 1, 0),
    ):
        assert (value(metrics, name, **labels), value(other, name, **labels)) == (count, before)
