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
    return metrics.registry.get_sample_value(name, labels)


def test_requests_are_counted_by_method_route_and_status_and_timed_by_method_and_route() -> None:
    metrics = Metrics()
    metrics.request("GET", "/v1/index", 200, 0.25)
    metrics.request("GET", "/v1/index", 200, 0.5)
    metrics.request("GET", "/v1/index", 503, 3.0)
    get = {"method": "GET", "route": "/v1/index"}
    assert value(metrics, "aladin_http_requests_total", **get, status="200") == 2
    assert value(metrics, "aladin_http_requests_total", **get, status="503") == 1
    assert value(metrics, "aladin_http_request_duration_seconds_sum", **get) == 3.75
    bucket = "aladin_http_request_duration_seconds_bucket"
    counts = {le: value(metrics, bucket, **get, le=le) for le in ("0.2", "0.5", "2.0", "5.0")}
    assert counts == {"0.2": 0, "0.5": 2, "2.0": 2, "5.0": 3}


def test_methods_that_clients_invent_make_one_series() -> None:
    metrics = Metrics()
    for number in range(50):
        metrics.request(f"BREW{number}", "other", 404, 0.001)
    brewed = {"method": "other", "route": "other", "status": "404"}
    assert value(metrics, "aladin_http_requests_total", **brewed) == 50
    assert b"BREW" not in metrics.render()


def test_a_search_is_timed_by_stage_in_seconds() -> None:
    metrics = Metrics()
    metrics.answered("photo", answered())
    metrics.answered("photo", answered())
    sums = {
        stage: value(metrics, "aladin_search_stage_duration_seconds_sum", stage=stage)
        for stage in STAGES
    }
    expected_ms = {"queue": 1, "decode": 2, "encode": 3, "retrieve": 4, "rerank": 5, "total": 20}
    assert sums == {name: pytest.approx(2 * ms / 1000) for name, ms in expected_ms.items()}


def test_a_look_into_the_cache_is_counted_where_there_is_something_to_encode() -> None:
    metrics = Metrics()
    metrics.answered("text", answered(cached=True))
    metrics.answered("text", answered())
    metrics.answered("photo", answered())
    metrics.answered("encoded", answered())
    lookups = "aladin_encoding_cache_lookups_total"
    assert value(metrics, lookups, result="hit") == 1
    assert value(metrics, lookups, result="miss") == 2


def test_degraded_answers_are_counted_by_what_they_lack() -> None:
    metrics = Metrics()
    metrics.answered("text", answered(degraded=("rerank", "rerank_timeout")))
    metrics.answered("text", answered(degraded=("rerank_timeout",)))
    assert value(metrics, "aladin_degraded_answers_total", reason="rerank") == 1
    assert value(metrics, "aladin_degraded_answers_total", reason="rerank_timeout") == 2


def test_answers_are_counted_by_whether_anything_matches_where_that_is_known() -> None:
    metrics = Metrics()
    assert value(metrics, "aladin_judged_answers_total", result="no_match") == 0
    for no_match in (None, True, False, True):
        metrics.answered("text", answered(no_match=no_match))
    assert value(metrics, "aladin_judged_answers_total", result="match") == 1
    assert value(metrics, "aladin_judged_answers_total", result="no_match") == 2


def test_queues_batches_and_workers() -> None:
    metrics = Metrics()
    waiting = [1, 2, 3, 4, 5]
    metrics.watch_queue("text", waiting.__len__)
    assert value(metrics, "aladin_queue_depth", lane="text") == 5
    del waiting[3:]
    metrics.batch("photo", 4)
    metrics.batch("photo", 2)
    metrics.worker_died()
    metrics.worker_restarted()
    metrics.rejected("overloaded")
    assert value(metrics, "aladin_queue_depth", lane="text") == 3
    assert value(metrics, "aladin_queue_depth", lane="photo") == 0
    assert value(metrics, "aladin_batch_size_sum", lane="photo") == 6
    assert value(metrics, "aladin_batch_size_count", lane="photo") == 2
    assert value(metrics, "aladin_worker_deaths_total") == 1
    assert value(metrics, "aladin_worker_restarts_total") == 1
    assert value(metrics, "aladin_rejected_requests_total", reason="overloaded") == 1


def test_series_with_known_labels_are_there_before_their_first_event() -> None:
    # A rate misses the event with which a series begins.
    metrics = Metrics()
    assert value(metrics, "aladin_rejected_requests_total", reason="rate_limited") == 0
    assert value(metrics, "aladin_encoding_cache_lookups_total", result="hit") == 0
    assert value(metrics, "aladin_batch_size_count", lane="encoded") == 0
    assert value(metrics, "aladin_worker_deaths_total") == 0


def test_two_applications_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.worker_died()
    assert value(other, "aladin_worker_deaths_total") == 0
