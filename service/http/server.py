"""Runs the HTTP service in this process."""

from __future__ import annotations

import contextlib
import logging
import socket
from contextlib import ExitStack
from pathlib import Path

import torch
import uvicorn

from aladin.errors import ConfigError, IndexNotReadyError
from index.devices.search_device import DeviceName, FirstStageName
from service.http.access.policy import make_policy
from service.http.app import create_app
from service.http.protocol import bounded_protocol
from service.metrics import Metrics
from service.settings import read_settings
from service.tracing import open_tracing
from service.work.thread_workers import ThreadWorkers
from service.work.worker_plan import WorkerPlan

_LOG = logging.getLogger(__name__)

# After a stop signal, queries that run get this long to finish.
_SHUTDOWN_S = 10


def serve_index(
    path: Path,
    host: str,
    port: int,
    *,
    read_only: bool = False,
    keys: Path | None = None,
    allow_anonymous: bool = False,
    device: DeviceName = "cpu",
    first_stage: FirstStageName = "faiss",
    warm: bool = False,
) -> None:
    """Serve one index until SIGINT or SIGTERM.

    Args:
        path: the index folder; without a live generation the service waits for one.
        host: address to listen on.
        port: 0 takes a free one; the log says which.
        read_only: refuse to add and to delete items, whatever the settings say.
        keys: file of the API keys; None: the one that the settings name, if any.
        allow_anonymous: let requests without a key search and read, whatever the settings say.
        device: where the network runs and searches.
        first_stage: what finds the candidates there.
        warm: have the files read into memory before the first query.

    Raises:
        ConfigError: a setting is impossible, the keys cannot be read, there are none and others
            can reach the address, the address cannot be listened on, or traces are
            wanted without the packages for them.
        SearchIndexError: the live generation is damaged.
        CheckpointError: its model cannot be loaded.
    """
    settings = read_settings()
    if read_only:
        settings = settings.model_copy(update={"read_only": True})
    if keys is not None:
        settings = settings.model_copy(update={"keys_file": keys})
    if allow_anonymous:
        settings = settings.model_copy(update={"allow_anonymous": True})
    policy = make_policy(settings, host)
    # Each query runs on one thread of the pool: more threads inside it would only fight.
    torch.set_num_threads(1)
    plan = WorkerPlan(
        index=path, settings=settings, device=device, first_stage=first_stage, warm=warm
    )
    worker = plan.make()
    with ExitStack() as stack:
        stack.callback(worker.close)
        try:
            worker.live.open()
        except IndexNotReadyError as error:
            _LOG.warning("%s; waiting for a generation", error)
        listener = stack.enter_context(_listen(host, port))
        bound_host, bound_port = listener.getsockname()[:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        _LOG.info("listening on http://%s:%d, described at /docs", shown, bound_port)
        metrics = Metrics()
        workers = ThreadWorkers(worker, settings, metrics)
        tracing = open_tracing(wanted=settings.traces)
        config = uvicorn.Config(
            create_app(workers, settings, metrics, tracing, policy),
            log_config=None,
            server_header=False,
            access_log=False,  # the application writes a better line of each request
            lifespan="on",
            http=bounded_protocol(settings.connection_limits),
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        # Ctrl-C is how a service is ended, no failure.
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    # Connections inherit it. Without, the kernel holds an answer's body back until the client
    # has acknowledged its headers, which clients put off by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
