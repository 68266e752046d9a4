"""Spans of requests and searches, kept in memory instead of being sent."""

from __future__ import annotations

import asyncio
import gzip
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi import FastAPI

from aladin_index.search.results import TookMs
from aladin_network.errors import ConfigError, IndexNotReadyError
from aladin_service.http.error_responses import install_error_handlers
from aladin_service.http.middleware import RequestContext
from aladin_service.http.server import open_tracing
from aladin_service.observe.logs import CURRENT_REQUEST, RequestRecord, SearchRecord
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered
from tests.service.searching import search_job

pytest.importorskip("opentelemetry.sdk", reason="needs aladin-search[otel]")

from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aladin_service.observe import otel_tracing
from aladin_service.observe.otel_tracing import OtelTracing, stage_times

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

ANSWERED = Answered(
    body=b"{}",
    generation=7,
    degraded=("rerank_timeout",),
    took_ms=TookMs(decode=2, encode=10, retrieve=3, rerank=5, total=40),
    cached=True,
    batch=4,
    queue_ms=8,
)
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


Ask = Callable[..., list[str | None]]
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SEARCH = "POST /v1/search/{target}"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of OpenTelemetry is set on the machine that tests."""
    for name in (*ENDPOINTS, "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Holds the spans that have ended."""
    return InMemorySpanExporter()


@pytest.fixture
def ask(exporter: InMemorySpanExporter) -> Ask:
    """Sends one request to a small application; returns the trace ids that its routes saw."""
    tracing, app = OtelTracing(SimpleSpanProcessor(exporter)), FastAPI()
    install_error_handlers(app)
    app.add_middleware(RequestContext, metrics=Metrics(), tracing=tracing)
    seen: list[str | None] = []

    @app.post("/v1/search/{target}")
    async def search(target: str) -> None:
        del target
        record = CURRENT_REQUEST.get()
        assert record is not None
        seen.append(record.trace_id)
        job = search_job("a private query")._replace(received_s=time.monotonic() - 0.04)
        record.searches.append(SearchRecord("text", job, ANSWERED))

    @app.get("/not-ready")
    async def not_ready() -> None:
        raise IndexNotReadyError("no index is live yet")

    def send(
        method: str = "POST", path: str = "/v1/search/images", **headers: str
    ) -> list[str | None]:
        async def run() -> None:
            transport = httpx.ASGITransport(app, client=("192.0.2.7", 5000))
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                await client.request(method, path, headers=headers)

        asyncio.run(run())
        return seen

    return send


def spans_of(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """Return the spans by name."""
    return {span.name: span for span in exporter.get_finished_spans()}


def milliseconds(span: ReadableSpan, since: ReadableSpan) -> tuple[float, float]:
    """Return when a span started and ended, after the start of another."""
    assert span.start_time is not None
    assert span.end_time is not None
    assert since.start_time is not None
    return (span.start_time - since.start_time) / 1e6, (span.end_time - since.start_time) / 1e6


def test_a_request_is_a_span_by_the_semantic_conventions(
    exporter: InMemorySpanExporter, ask: Ask
) -> None:
    ask()
    span = spans_of(exporter)[SEARCH]
    assert (span.kind, span.parent) == (SpanKind.SERVER, None)
    attributes = dict(span.attributes or {})
    assert len(str(attributes.pop("aladin.request_id"))) == 32
    assert attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/search/{target}",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": "/v1/search/images",
        "network.protocol.version": "1.1",
        "client.address": "192.0.2.7",
        "server.address": "test",
    }
    assert span.resource.attributes["service.name"] == "aladin"
    assert "private" not in "".join(each.to_json() for each in exporter.get_finished_spans())


def test_a_search_and_its_stages_are_below_it_at_the_times_that_they_took(
    exporter: InMemorySpanExporter, ask: Ask
) -> None:
    ask()
    spans = spans_of(exporter)
    search = spans["search"]
    assert search.parent == spans[SEARCH].get_span_context()
    assert dict(search.attributes or {}) == {
        "aladin.target": "images",
        "aladin.lane": "text",
        "aladin.batch_size": 4,
        "aladin.encoding_cached": True,
        "aladin.generation": 7,
        "aladin.degraded": ("rerank_timeout",),
    }
    for name, times in {
        "search": (0, 40),
        "queue": (0, 8),
        "decode": (8, 10),
        "encode": (10, 20),
        "retrieve": (32, 35),
        "rerank": (35, 40),
    }.items():
        assert name == "search" or spans[name].parent == search.get_span_context()
        assert milliseconds(spans[name], search) == pytest.approx(times, abs=0.001)
    assert search.end_time is not None
    assert abs(search.end_time - time.time_ns()) < 60e9  # of this minute, not since the start


def test_stages_that_took_no_time_are_left_out() -> None:
    took_ms = TookMs(decode=0, encode=4, retrieve=1, rerank=0, total=6)
    stages = stage_times(ANSWERED._replace(took_ms=took_ms, queue_ms=0.5))
    found = [(stage.name, stage.start_ms, stage.end_ms) for stage in stages]
    assert found == [("queue", 0, 0.5), ("encode", 0.5, 4.5), ("retrieve", 5, 6)]


def test_the_callers_trace_goes_on_if_it_is_sampled(
    exporter: InMemorySpanExporter, ask: Ask
) -> None:
    assert ask(traceparent=f"00-{TRACE_ID}-{PARENT_ID}-00") == [TRACE_ID]  # the log still names it
    assert exporter.get_finished_spans() == ()
    assert ask(traceparent=f"00-{TRACE_ID}-{PARENT_ID}-01")[1:] == [TRACE_ID]
    span = spans_of(exporter)[SEARCH]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT_ID
    assert {f"{each.context.trace_id:032x}" for each in exporter.get_finished_spans()} == {TRACE_ID}
    exporter.clear()
    *_, own = ask(traceparent="00-nonsense-01")  # begins a trace of its own
    assert spans_of(exporter)[SEARCH].parent is None
    assert own is not None
    assert own != TRACE_ID
    assert len(own) == 32


def test_a_failure_of_the_service_is_an_error_and_a_fault_of_the_client_is_none(
    exporter: InMemorySpanExporter, ask: Ask
) -> None:
    ask("GET", "/not-ready")
    ask("BREW", "/nothing")
    spans = spans_of(exporter)
    failed, unknown = spans["GET /not-ready"], spans["HTTP"]
    assert failed.status.status_code == StatusCode.ERROR
    assert dict(failed.attributes or {})["error.type"] == "index_not_ready"
    assert unknown.status.status_code == StatusCode.UNSET
    attributes = dict(unknown.attributes or {})
    assert attributes["http.request.method"] == "_OTHER"
    assert attributes["http.response.status_code"] == 404
    assert "http.route" not in attributes


def test_traces_are_off_unless_something_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_tracing(wanted=False) is None
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert open_tracing(wanted=True) is None


@pytest.mark.parametrize("name", [*ENDPOINTS, "ALADIN_TRACES"])
def test_without_the_packages_it_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in ENDPOINTS:
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delitem(sys.modules, "aladin_service.observe.otel_tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=rf"^{name}, .* pip install 'aladin-search\[otel\]'$"):
        open_tracing(wanted=name == "ALADIN_TRACES")


def test_closing_sends_what_is_not_sent_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "photos")
    exporter = InMemorySpanExporter()
    # By itself it would send nothing within a test.
    tracing = OtelTracing(BatchSpanProcessor(exporter, schedule_delay_millis=600_000))
    span = tracing.begin({"method": "GET", "path": "/", "headers": []})
    span.end("/", 200, RequestRecord("id"))
    assert exporter.get_finished_spans() == ()
    tracing.close()
    (sent,) = exporter.get_finished_spans()
    assert sent.name == "GET /"
    assert sent.resource.attributes["service.name"] == "photos"


def test_closing_does_not_wait_for_a_collector_that_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel_tracing, "_CLOSE_S", 0.05)
    taken = threading.Event()

    class Stuck(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            taken.wait(30)
            return super().export(spans)

    tracing = OtelTracing(BatchSpanProcessor(Stuck(), schedule_delay_millis=600_000))
    tracing.begin({"method": "GET", "path": "/", "headers": []}).end("/", 200, RequestRecord("id"))
    tracing.close()
    taken.set()
    assert "the last traces were not sent" in caplog.text


def test_spans_go_where_opentelemetrys_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{collector.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        tracing = open_tracing(wanted=False)
        assert tracing is not None
        trace = tracing.begin({"method": "GET", "path": "/v1/index", "headers": []})
        trace.end("/v1/index", 200, RequestRecord("id"))
        tracing.close()
        collector.shutdown()
        thread.join()
    ((path, body),) = taken
    assert path == "/v1/traces"
    plain = gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body
    assert b"GET /v1/index" in plain
    assert bytes.fromhex(trace.trace_id) in plain
