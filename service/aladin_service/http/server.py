"""Runs the HTTP service in this process: uvicorn with connection limits and a graceful shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from aladin_network.errors import (
    ConfigError,
    EngineUnavailableError,
    IndexNotReadyError,
    missing_package,
)
from aladin_network.graphs.threads import set_compute_threads
from aladin_service.http.access.policy import closed_policy, make_policy
from aladin_service.http.app import create_app
from aladin_service.http.connections import (
    PROBE_PLACES,
    Networks,
    bounded_protocol,
    trusted_proxies,
)
from aladin_service.http.middleware import LayeredApplication
from aladin_service.http.shared_state import ServiceState
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings, settings_with
from aladin_service.work.crashing_generations import is_fault
from aladin_service.work.process_setup import (
    allow_open_files,
    freeze_loaded_objects,
    limit_free_memory,
    silence_decoders,
    trim_memory_regularly,
)
from aladin_service.work.process_start import prepare_processes, try_in_process
from aladin_service.work.processes import ProcessWorkers
from aladin_service.work.worker import Worker, WorkerPlan
from aladin_service.work.workers import ThreadWorkers, Workers

if TYPE_CHECKING:
    from aladin_service.observe.otel_tracing import OtelTracing

_LOG = logging.getLogger(__name__)

# OpenTelemetry's own variables; the exporter reads these and its other variables itself.
_TRACES_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACES_DISABLED = "OTEL_SDK_DISABLED"

_ALL_ADDRESSES = ("0.0.0.0", "::")
# Where no port is asked for, the first free one of these is taken.
DEFAULT_PORT = 8000
_PORTS_TRIED = 100


class GracefulServer(uvicorn.Server):
    """A uvicorn server that announces its end before it stops listening.

    On SIGTERM or SIGINT no connection is accepted any more and idle ones are closed; requests in
    progress have the configuration's ``timeout_graceful_shutdown`` to be answered. Then the
    application is shut down. A second SIGINT ends the server at once.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._early_signal: int | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_stop()
        super().handle_exit(sig, frame)

    def serve_until_stopped(self, listener: socket.socket) -> None:
        """Serve until a stop signal; return after the shutdown."""
        # uvicorn raises the signals again after its shutdown, which would kill the process.
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._note_early)
        try:
            self.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and stop at once if a stop signal came before uvicorn handled signals."""
        await super().startup(sockets)
        if self._early_signal is not None:
            asyncio.get_running_loop().call_soon(self.handle_exit, self._early_signal, None)

    def _note_early(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._early_signal = number


def server_config(app: ASGIApp, settings: ServiceSettings, proxies: Networks) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        server_header=False,
        access_log=False,  # the application logs each request itself
        lifespan="on",
        http=bounded_protocol(settings, proxies),
        ws="none",  # WebSockets would bypass the limits of `BoundedProtocol`
        proxy_headers=bool(proxies),
        forwarded_allow_ips=[str(network) for network in proxies],
        timeout_graceful_shutdown=settings.shutdown_s,
    )


def serve_index(
    plan: WorkerPlan,
    host: str,
    port: int | None,
    *,
    wait: bool = False,
    on_listening: Callable[[str], None] = lambda address: None,  # noqa: ARG005
) -> None:
    """Serve one index until SIGINT or SIGTERM.

    Without a port it is the first free one from 8000; `on_listening` gets the address of the
    page as soon as connections are accepted. With `wait`, a service starts without a live
    generation.
    """
    settings = plan.settings
    metrics = Metrics()
    policy = make_policy(settings, host)
    proxies = trusted_proxies()
    allow_open_files(settings.max_connections + PROBE_PLACES)
    limit_free_memory()
    # Each query has a thread of its own; more threads inside it would compete with the others.
    set_compute_threads(1)
    silence_decoders()
    with ExitStack() as stack:
        unserved = stack.enter_context(ExitStack())
        workers = _make_workers(plan, metrics, unserved, wait=wait)
        freeze_loaded_objects()
        trim_memory_regularly()
        listener = stack.enter_context(_listen(host, port))
        on_listening(_log_address(listener))
        tracing = open_tracing(wanted=settings.traces)
        app = create_app(workers, settings, metrics, tracing, policy)
        config = server_config(app, settings, proxies)
        # From here on the application closes its workers, unless a thread is still busy.
        unserved.pop_all()
        GracefulServer(config, partial(_drain, app)).serve_until_stopped(listener)


def open_tracing(*, wanted: bool) -> OtelTracing | None:
    """Enable tracing if the setting or OpenTelemetry's variables request it.

    Nothing of the packages, an extra (``otel``), is imported otherwise.
    """
    if os.environ.get(_TRACES_DISABLED, "").strip().lower() == "true":
        return None
    named = next((name for name in _TRACES_ENDPOINTS if os.environ.get(name)), None)
    if named is None and not wanted:
        return None
    try:
        from aladin_service.observe.otel_tracing import OtelTracing
    except ModuleNotFoundError:
        cause = f"{named or 'ALADIN_TRACES'}, which enables traces,"
        raise ConfigError(missing_package(cause, "opentelemetry")) from None
    return OtelTracing.to_collector()


def open_alone(plan: WorkerPlan) -> LayeredApplication:
    """Open one index for a single client of this process, without HTTP.

    Its workers are threads, which the lifespan of the application starts.
    """
    metrics = Metrics()
    set_compute_threads(1)
    silence_decoders()
    with ExitStack() as unserved:
        workers = _make_workers(plan, metrics, unserved, wait=False)
        unserved.pop_all()
    return create_app(workers, plan.settings, metrics, policy=closed_policy())


def _log_address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _LOG.info("listening on http://%s:%d", shown, port)
    # A wildcard address cannot be opened in a browser.
    page = f"http://{'localhost' if host in _ALL_ADDRESSES else shown}:{port}"
    _LOG.info("search page: %s; HTTP API: %s/docs", page, page)
    return page


def check_address(host: str, port: int | None, keys: Path | None = None) -> None:
    """Check that a service may listen on an address, before long work."""
    make_policy(settings_with(keys_file=keys), host)
    _listen(host, port).close()


def _make_workers(plan: WorkerPlan, metrics: Metrics, stack: ExitStack, *, wait: bool) -> Workers:
    """Create the workers that the settings ask for; the index is valid, or is waited for."""
    if plan.settings.workers > 1:
        prepare_processes(plan.index, plan.device)
        how = try_in_process(plan)  # a damaged index may crash the process that opens it
        if is_fault(how):
            _LOG.error("a process crashed while opening the index at %s (%s)", plan.index, how)
        elif how != "exit status 0":
            with closing(plan.make()) as worker:  # to raise its error here
                _open(worker, wait=wait)
        return ProcessWorkers(plan, metrics)
    worker = plan.make(metrics.engine_call)
    stack.callback(worker.close)
    _open(worker, wait=wait)
    return ThreadWorkers(worker, plan.settings, metrics)


def _open(worker: Worker, *, wait: bool) -> None:
    try:
        worker.live.open()
        worker.check_detector()
    except IndexNotReadyError as error:
        if not wait:
            raise
        _LOG.warning("%s; waiting for an index to be published", error)
    except EngineUnavailableError as error:
        _LOG.warning("%s; waiting until it responds", error)


def _drain(app: FastAPI) -> None:
    """Make /readyz report the shutdown."""
    state: ServiceState | None = getattr(app.state, "service", None)
    if state is not None:  # None if the signal arrives before the application has started
        state.draining = True


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = range(DEFAULT_PORT, DEFAULT_PORT + _PORTS_TRIED) if port is None else [port]
    for number in wanted:
        try:
            listener = socket.create_server((host, number), family=family)
        except OSError as error:
            is_taken = error.errno == errno.EADDRINUSE
            if is_taken and port is None:
                continue
            # The error's own words repeat the address.
            reason = "it is in use; choose another with --port" if is_taken else error.strerror
            raise ConfigError(f"cannot listen on {host}, port {number}: {reason}") from None
        # Inherited by the connections. Without it the kernel holds back the body of an answer until
        # the client has acknowledged the headers, which clients delay by 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    raise ConfigError(f"cannot listen on {host}: the ports {wanted[0]} to {wanted[-1]} are in use")
