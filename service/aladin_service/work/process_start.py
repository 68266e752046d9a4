"""Starting and ending worker processes."""

from __future__ import annotations

import multiprocessing
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING

from aladin_index.format.manifest import likely_model_folder
from aladin_network.graphs.loading import uses_graphs
from aladin_network.types import DeviceName
from aladin_service.observe.logs import log_setup

if TYPE_CHECKING:
    from aladin_service.work.worker import WorkerPlan

_CONTEXT = multiprocessing.get_context("forkserver")
# A worker has nothing to finish when it is asked to end: after this time, it is stuck.
_END_S = 2.0
# Importing everything takes seconds on a busy machine, and loading a large network takes longer.
TRIAL_S = 120.0
# Modules that the fork server imports in advance: a worker then starts in a fraction of a second.
_PRELOAD = ["aladin_service.cli", "aladin_service.work.worker_process"]
# What networks without graphs need besides: torch, and the transformers library, which takes
# seconds.
_ENCODERS = ["aladin_network.encoders.hf_image", "aladin_network.encoders.hf_text"]


def prepare_processes(index: Path, device: DeviceName = "cpu") -> None:
    """Start the fork server unless it runs; it imports the workers' modules in the background.

    It is a separate program: a worker inherits no thread of this process and no state of torch.
    """
    # Not the runtime of the graphs: ONNX Runtime starts a thread when it is imported.
    has_graphs = device == "cpu" and uses_graphs(likely_model_folder(index))
    _CONTEXT.set_forkserver_preload(_PRELOAD if has_graphs else [*_PRELOAD, *_ENCODERS])
    with _signals_held():
        forkserver.ensure_running()


def start_process(plan: WorkerPlan) -> tuple[ForkServerProcess, socket.socket]:
    """Start a worker process; returns it with the service's end of its socket.

    Blocks for a moment. OSError or EOFError: the system, or the fork server, cannot start one.
    """
    # The fork server imports the module; importing it here would only take time.
    from aladin_service.work.worker_process import run_worker

    prepare_processes(plan.index, plan.device)
    ours, theirs = socket.socketpair()
    try:
        with theirs, _signals_held():
            process = _CONTEXT.Process(target=run_worker, args=(plan, theirs, log_setup()))
            process.start()
    except BaseException:
        ours.close()
        raise
    return process, ours


def start_trial(plan: WorkerPlan) -> ForkServerProcess:
    """Start a process that opens the live generation and exits, see `try_plan`.

    Blocks for a moment.
    """
    from aladin_service.work.worker_process import try_plan

    prepare_processes(plan.index, plan.device)
    with _signals_held():
        process = _CONTEXT.Process(target=try_plan, args=(plan, log_setup()))
        process.start()
    return process


def try_in_process(plan: WorkerPlan) -> str:
    """Open the live generation in a separate process; returns how it ended, see `end_process`."""
    process = start_trial(plan)
    process.join(TRIAL_S)
    return end_process(process)


def end_process(process: ForkServerProcess) -> str:
    """End a process whose socket is closed; returns the name of a signal, or the exit status."""
    process.join(_END_S)
    if process.exitcode is None:
        process.kill()
        process.join()
    code = process.exitcode or 0
    process.close()
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


@contextmanager
def _signals_held() -> Generator[None]:
    """Keep processes that are started meanwhile from being ended by SIGINT and SIGTERM.

    Ctrl-C and service managers signal all processes of a service; the main process ends the others
    when they have finished their work.
    """
    # Starting this helper would unblock the signals, so it has to run beforehand.
    resource_tracker.ensure_running()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
