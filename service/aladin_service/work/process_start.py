"""Starts and ends worker processes."""

from __future__ import annotations

import multiprocessing
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess

from aladin_service.observe.logs import log_setup
from aladin_service.work.worker import WorkerPlan

# A worker that is told to end has nothing to finish: longer than this, it is stuck.
_END_S = 2.0
# To import everything takes seconds on a busy machine, to load a large network some more.
TRIAL_S = 120.0
# What the server of forks imports beforehand, so that a worker is there in a fraction of a second.
_PRELOAD = ["aladin_service.cli", "aladin_service.work.worker_process"]


def prepare_processes() -> None:
    """Start the server of forks, which imports what workers need, while the caller does others.

    It is a program of its own: no thread of this one, and nothing that torch has begun here, comes
    into a worker.
    """
    _context()
    with _signals_held():
        forkserver.ensure_running()


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    return context


def start_process(plan: WorkerPlan) -> tuple[ForkServerProcess, socket.socket]:
    """Start a worker process; blocks for a moment.

    Returns:
        The process, and the service's end of the wire to it.

    Raises:
        OSError: the system has no room for another process.
        EOFError: the server of forks has died.
    """
    # Imported by the server of forks; here it would only take time.
    from aladin_service.work.worker_process import run_worker

    ours, theirs = socket.socketpair()
    try:
        with theirs, _signals_held():
            process = _context().Process(target=run_worker, args=(plan, theirs, log_setup()))
            process.start()
    except BaseException:
        ours.close()
        raise
    return process, ours


def start_trial(plan: WorkerPlan) -> ForkServerProcess:
    """Start a process that opens what is live and ends, see `try_plan`; blocks for a moment.

    Raises:
        OSError: the system has no room for another process.
        EOFError: the server of forks has died.
    """
    from aladin_service.work.worker_process import try_plan

    with _signals_held():
        process = _context().Process(target=try_plan, args=(plan, log_setup()))
        process.start()
    return process


def try_in_process(plan: WorkerPlan) -> str:
    """Open what is live in a process of its own, and wait for its end.

    Returns:
        How it ended, see `end_process`: SIGKILL where it took too long.

    Raises:
        OSError: the system has no room for another process.
        EOFError: the server of forks has died.
    """
    process = start_trial(plan)
    process.join(TRIAL_S)
    return end_process(process)


def end_process(process: ForkServerProcess) -> str:
    """Wait for a process whose wire is closed, kill it if it does not end, and forget it; blocks.

    Returns:
        How it ended: the name of a signal, or its exit status.
    """
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

    Ctrl-C and service managers signal all processes of a service; its own process ends the others
    when they have finished what it took.
    """
    # It unblocks them when it starts a helper of its own: that has to be there before.
    resource_tracker.ensure_running()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
