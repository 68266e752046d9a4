"""Interface of OpenTelemetry traces of requests, and whether tracing is enabled.

The packages are an extra (``aladin-search[otel]``); nothing of them is imported unless traces are
switched on.
"""

from __future__ import annotations

import os
from typing import Protocol

from starlette.types import Scope

from aladin_network.errors import ConfigError, missing_package
from aladin_service.observe.logs import RequestRecord

# OpenTelemetry's own variables; the exporter reads these and its other variables itself.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_DISABLED = "OTEL_SDK_DISABLED"


class RequestTrace(Protocol):
    """The trace of one request, from its headers on."""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits: the caller's trace ID, or a new one."""
        ...

    def end(self, route: str | None, status: int | None, record: RequestRecord) -> None:
        """Record the outcome of the request; its searches become spans of their own.

        Args:
            route: Template of the matched route, or None if no route matched.
            status: Status of the response, or None if the client disconnected before the response.
            record: Further data about the request.
        """
        ...


class Tracing(Protocol):
    """Creates and exports traces."""

    def begin(self, scope: Scope) -> RequestTrace:
        """Begin the trace of a request, as a part of the caller's if its headers name one."""
        ...

    def close(self) -> None:
        """Send the remaining spans; blocks, for some seconds at worst."""
        ...


def open_tracing(*, wanted: bool) -> Tracing | None:
    """Enable tracing if the setting or OpenTelemetry's variables request it.

    Args:
        wanted: Trace even if no variable gives a destination; the spans are then sent to a
            collector on this machine.

    Returns:
        None where traces are switched off.

    Raises:
        ConfigError: If tracing is enabled, but the packages are not installed.
    """
    if os.environ.get(_DISABLED, "").strip().lower() == "true":
        return None
    named = next((name for name in _ENDPOINTS if os.environ.get(name)), None)
    if named is None and not wanted:
        return None
    try:
        from aladin_service.observe.otel_tracing import OtelTracing
    except ModuleNotFoundError as error:
        cause = f"{named or 'ALADIN_TRACES'}, which enables traces,"
        raise ConfigError(missing_package(cause, str(error.name), "otel")) from None
    return OtelTracing.to_collector()
