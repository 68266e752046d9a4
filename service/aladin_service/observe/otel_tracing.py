"""Traces by OpenTelemetry's SDK; imported only if tracing is enabled.

The event loop process makes all spans. Those of a search are made when its answer is there, from
the times that the answer carries: no worker knows of traces.
"""

from __future__ import annotations

import logging
import threading
import time
from importlib.metadata import version
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

from aladin_service.observe.logs import RequestRecord, SearchRecord
from aladin_service.observe.metrics import METHODS
from aladin_service.search.job import Answered

_LOG = logging.getLogger(__name__)

# Name that the SDK gives to a service without a configured name.
_NAMELESS = "unknown_service"
# Time for the collector to accept the remaining spans when the service ends; the collector may have
# ended before.
_CLOSE_S = 3.0


class OtelTracing:
    def __init__(self, processor: SpanProcessor) -> None:
        resource = Resource.create({SERVICE_VERSION: version("aladin-search")})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith(_NAMELESS):
            resource = resource.merge(Resource({SERVICE_NAME: "aladin"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("service", version("aladin-search"))
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def to_collector(cls) -> OtelTracing:
        """Send spans in batches, from a thread, to the target in OpenTelemetry's variables."""
        return cls(BatchSpanProcessor(OTLPSpanExporter()))

    def begin(self, scope: Scope) -> OtelRequestTrace:
        """Begin the trace of a request, as a part of the caller's if its headers name one."""
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        # A client may invent any number of methods, and spans are grouped by their names.
        method = scope["method"] if scope["method"] in METHODS else "HTTP"
        attributes = {
            "http.request.method": method if method != "HTTP" else "_OTHER",
            "url.scheme": scope.get("scheme", "http"),
            "url.path": scope["path"],
            "network.protocol.version": scope.get("http_version", "1.1"),
        }
        client, server = scope.get("client"), scope.get("server")
        if client is not None:
            attributes["client.address"] = client[0]
        if server is not None:
            attributes["server.address"] = server[0]
        span = self._tracer.start_span(
            method,
            context=self._propagator.extract(headers),
            kind=SpanKind.SERVER,
            attributes=attributes,
        )
        return OtelRequestTrace(self._tracer, span, method)

    def close(self) -> None:
        """Send the remaining spans; blocks, for some seconds at worst."""
        # The SDK does not respect its own timeouts while it tries to reach a collector.
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(_CLOSE_S)
        if last.is_alive():
            _LOG.warning(
                "the last traces were not sent: no collector accepted them within %g s", _CLOSE_S
            )


class OtelRequestTrace:
    def __init__(self, tracer: Tracer, span: Span, method: str) -> None:
        self._tracer = tracer
        self._span = span
        self._method = method

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return format_trace_id(self._span.get_span_context().trace_id)

    def end(self, route: str | None, status: int | None, record: RequestRecord) -> None:
        """End the span, with a child span for each search and for each stage of a search."""
        span = self._span
        if span.is_recording():
            if route is not None:
                span.update_name(f"{self._method} {route}")
                span.set_attribute("http.route", route)
            if status is not None:
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(StatusCode.ERROR)
                    span.set_attribute("error.type", record.error_code or str(status))
            span.set_attribute("aladin.request_id", record.request_id)
            for search in record.searches:
                self._add_search(search)
        span.end()

    def _add_search(self, search: SearchRecord) -> None:
        answered = search.answered
        clock_ns = time.time_ns() - time.monotonic_ns()  # when the monotonic clock stood at 0
        received_ns = clock_ns + round(1e9 * search.job.received_s)
        span = self._tracer.start_span(
            "search",
            context=set_span_in_context(self._span),
            start_time=received_ns,
            attributes={
                "aladin.target": search.job.target,
                "aladin.lane": search.queue,
                "aladin.batch_size": answered.batch,
                "aladin.encoding_cached": answered.cached,
                "aladin.generation": answered.generation,
                "aladin.degraded": answered.degraded,
            },
        )
        below = set_span_in_context(span)
        for stage in stage_times(answered):
            start_ns = received_ns + round(1e6 * stage.start_ms)
            part = self._tracer.start_span(stage.name, context=below, start_time=start_ns)
            part.end(received_ns + round(1e6 * stage.end_ms))
        span.end(received_ns + round(1e6 * answered.took_ms.total))


class StageTime(NamedTuple):
    """Time range of one stage of a search, in milliseconds since the request was received."""

    name: str
    start_ms: float
    end_ms: float


def stage_times(answered: Answered) -> list[StageTime]:
    """Arrange the stages of a search on a time line, omitting those that took no time.

    Waiting, decoding and encoding follow the request; retrieving and re-ranking come right before
    the answer. What lies between is the time for other queries of the same batch.
    """
    took_ms = answered.took_ms
    encode_ms = answered.queue_ms + took_ms.decode
    rerank_ms = took_ms.total - took_ms.rerank
    starts = [
        ("queue", 0.0, answered.queue_ms),
        ("decode", answered.queue_ms, took_ms.decode),
        ("encode", encode_ms, took_ms.encode),
        ("retrieve", rerank_ms - took_ms.retrieve, took_ms.retrieve),
        ("rerank", rerank_ms, took_ms.rerank),
    ]
    return [StageTime(name, start, start + length) for name, start, length in starts if length > 0]
