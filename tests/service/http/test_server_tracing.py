"""Whether traces are made, and what is said where they cannot be."""

from __future__ import annotations

import sys

import pytest

from aladin_network.errors import ConfigError
from aladin_service.http.server import open_tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of OpenTelemetry is set on the machine that tests."""
    for name in (*ENDPOINTS, "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


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
    with pytest.raises(ConfigError) as caught:
        open_tracing(wanted=name == "ALADIN_TRACES")
    message = str(caught.value)
    assert message.startswith(f"{name}, which enables traces, needs the package opentelemetry")
    assert message.endswith("pip install 'aladin-search[otel]'")
