"""Uvicorn, ended as a service ought to end: it finishes what it took, and that is no failure.

How uvicorn serves the application.

Runs the HTTP service in this process.
"""

from __future__ import annotations

import errno
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import FrameType

import torch
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from aladin_index.format.engine_location import location_of
from aladin_network.errors import ConfigError, EngineUnavailableError, IndexNotReadyError
from aladin_network.types import DeviceName, FirstStageName
from aladin_service.http.access.policy import make_policy
from aladin_service.http.access.proxies import ForwardedClient, TrustedProxies
from aladin_service.http.app import create_app
from aladin_service.http.connections import PROBE_PLACES, bounded_protocol
from aladin_service.http.state import ServiceState
from aladin_service.observe.metrics import Metrics
from aladin_service.observe.tracing import open_tracing
from aladin_service.settings import ServiceSettings, read_settings
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


class GracefulServer(uvicorn.Server):
    """Says that it is going to end before it stops to listen.

    On SIGTERM or SIGINT no connection is taken any more and idle ones are closed; requests that
    were taken have the configuration's ``timeout_graceful_shutdown`` to be answered. Then the
    application is shut down. A second SIGINT cuts it short.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        """Serve nothing yet.

        Args:
            config: of the server.
            on_stop: called when the signal comes.
        """
        super().__init__(config)
        self._on_stop = on_stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end."""
        self._on_stop()
        super().handle_exit(sig, frame)

    def serve_until_stopped(self, listener: socket.socket) -> None:
        """Serve until a stop signal; return when all is finished.

        Args:
            listener: takes the connections.
        """
        # Uvicorn raises the signals again that it has acted upon: that one was asked to end is no
        # reason to be killed by it in the end.
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, _pass)
        try:
            self.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _pass(number: int, frame: FrameType | None) -> None:
    """Do nothing."""


def server_config(
    app: ASGIApp, settings: ServiceSettings, proxies: TrustedProxies
) -> uvicorn.Config:
    """Return the configuration of uvicorn.

    Args:
        app: Application to serve.
        settings: Limits of connections and of the time to shut down.
        proxies: Peers whose `X-Forwarded-For` is believed.
    """
    return uvicorn.Config(
        ForwardedClient(app, proxies) if proxies else app,
        log_config=None,
        server_header=False,
        access_log=False,  # the application writes a better line of each request
        lifespan="on",
        http=bounded_protocol(settings, proxies),
        ws="none",  # its connections would have none of the limits of `BoundedProtocol`
        # uvicorn believes the header of every process of this machine, and whatever it holds.
        proxy_headers=False,
        timeout_graceful_shutdown=settings.shutdown_s,
    )


_LOG = logging.getLogger(__name__)

_ALL_ADDRESSES = ("0.0.0.0", "::")


def serve_index(
    path: Path,
    host: str,
    port: int,
    *,
    worker_count: int | None = None,
    read_only: bool = False,
    keys: Path | None = None,
    allow_anonymous: bool = False,
    device: DeviceName = "cpu",
    first_stage: FirstStageName = "faiss",
    warm: bool = False,
    detector: str | None = None,
    wait: bool = False,
    photos_root: Path | None = None,
) -> None:
    """Serve one index until SIGINT or SIGTERM.

    Args:
        path: the index folder.
        host: address to listen on.
        port: 0 takes a free one; the log says which.
        worker_count: processes that encode and search, whatever the settings say; 1: threads.
        read_only: refuse to add and to delete items, whatever the settings say.
        keys: file of the API keys; None: the one that the settings name, if any.
        allow_anonymous: let requests without a key search and read, whatever the settings say.
        device: where the network runs and searches.
        first_stage: what finds the candidates there.
        warm: have the files read into memory before the first query.
        detector: finds the regions of photos, whatever the settings say; None: as they say.
        wait: start without a live generation too, and answer from the moment there is one.
        photos_root: folder outside of which no photo is shown, whatever the settings say; None:
            as they say.

    Raises:
        IndexNotReadyError: there is no live generation, and `wait` is False.
        ConfigError: a setting is impossible, FORWARDED_ALLOW_IPS too, the keys cannot be read,
            there are none and others can reach the address, the address cannot be listened on,
            traces are wanted without the packages for them, or the detector is not the one of the
            index's model.
        SearchIndexError: the live generation is damaged, or its engine refuses this service.
        CheckpointError: its model cannot be loaded.
    """
    settings = read_settings(worker_count)
    if read_only:
        settings = settings.model_copy(update={"read_only": True})
    if keys is not None:
        settings = settings.model_copy(update={"keys_file": keys})
    if allow_anonymous:
        settings = settings.model_copy(update={"allow_anonymous": True})
    if detector is not None:
        settings = settings.model_copy(update={"detector": detector})
    if photos_root is not None:
        settings = settings.model_copy(update={"photos_root": photos_root})
    if settings.photos_root is not None and not settings.photos_root.is_dir():
        raise ConfigError(f"photos_root: expected a folder, got {settings.photos_root}")
    metrics = Metrics()
    policy = make_policy(settings, host, metrics=metrics)
    proxies = TrustedProxies.from_environment()
    allow_open_files(settings.max_connections + PROBE_PLACES)
    limit_free_memory()
    # Each query runs on one thread of the pool: more threads inside it would only fight.
    torch.set_num_threads(1)
    silence_decoders()
    plan = WorkerPlan(
        index=path, settings=settings, device=device, first_stage=first_stage, warm=warm
    )
    with ExitStack() as stack:
        unserved = stack.enter_context(ExitStack())
        workers = _make_workers(plan, metrics, unserved, wait=wait)
        freeze_loaded_objects()
        trim_memory_regularly()
        listener = stack.enter_context(_listen(host, port))
        bound_host, bound_port = listener.getsockname()[:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        _LOG.info("listening on http://%s:%d", shown, bound_port)
        # An address that stands for all of the machine's is none to open.
        page = f"http://{'localhost' if bound_host in _ALL_ADDRESSES else shown}:{bound_port}"
        _LOG.info("open %s to search; the HTTP API is described at %s/docs", page, page)
        tracing = open_tracing(wanted=settings.traces)
        app = create_app(workers, settings, metrics, tracing, policy)
        config = server_config(app, settings, proxies)
        # From here on the application closes its workers, unless a thread is still at something.
        unserved.pop_all()
        GracefulServer(config, partial(_drain, app)).serve_until_stopped(listener)


def check_address(host: str, port: int) -> None:
    """Check that a service without keys can listen on an address, before long work.

    Args:
        host: address to listen on.
        port: 0 for any free one.

    Raises:
        ConfigError: the port is taken, the address is not this machine's, a setting is impossible,
            or others can reach the address and there are no keys.
    """
    make_policy(read_settings(), host, metrics=Metrics())
    _listen(host, port).close()


def _make_workers(plan: WorkerPlan, metrics: Metrics, stack: ExitStack, *, wait: bool) -> Workers:
    """Make threads or processes, as the settings say; the index is sound, or is waited for."""
    if plan.settings.workers > 1:
        _check_many_may_open(plan)
        prepare_processes()
        how = try_in_process(plan)  # not here, for some damage ends the process that opens it
        if is_fault(how):
            _LOG.error("a process that opened the index at %s ended by %s", plan.index, how)
        elif how != "exit status 0":
            with closing(plan.make()) as worker:  # for its errors, which the user has to see
                _open(worker, wait=wait)
        return ProcessWorkers(plan, metrics)
    worker = plan.make(metrics.engine_call)
    stack.callback(worker.close)
    _open(worker, wait=wait)
    return ThreadWorkers(worker, plan.settings, metrics)


def _check_many_may_open(plan: WorkerPlan) -> None:
    """Refuse more than one process for an engine that is a folder of this machine.

    Raises:
        ConfigError: it would be locked by the first.
    """
    location = location_of(plan.index)
    url = plan.settings.engine_url or (location and location.url)
    if location is not None and url is not None and url.startswith("file:"):
        raise ConfigError(
            f"workers: expected 1, for one process at a time may open a folder of "
            f"{location.engine}, got {plan.settings.workers}"
        )


def _open(worker: Worker, *, wait: bool) -> None:
    try:
        worker.live.open()
        worker.check_detector()
    except IndexNotReadyError as error:
        if not wait:
            raise IndexNotReadyError(
                f"{error}; --wait starts the service before there is one"
            ) from None
        _LOG.warning("%s; waiting for a generation", error)
    except EngineUnavailableError as error:
        _LOG.warning("%s; waiting for it", error)


def _drain(app: FastAPI) -> None:
    """Have /readyz say that the service ends."""
    state: ServiceState | None = getattr(app.state, "service", None)
    if state is not None:  # the signal may come before the application has started
        state.draining = True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        hint = "; choose another with --port" if error.errno == errno.EADDRINUSE else ""
        reason = f"cannot listen on {host}, port {port}: {error.strerror}{hint}"
        raise ConfigError(reason) from None
    # Connections inherit it. Without, the kernel holds an answer's body back until the client
    # has acknowledged its headers, which clients put off by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
