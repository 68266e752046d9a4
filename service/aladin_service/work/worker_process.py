"""A worker process: receives batches and jobs from the service and sends back the results.

    main thread       receives messages, and exits when the service is gone
    batch threads     answer one batch at a time each
    job threads       run one job at a time each, so that uploads do not delay queries
    status thread     reports that the process is alive, and opens new generations when it is idle

Work whose end has not been reported is lost with the process; the service informs its clients.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, NoReturn, TypeVar, cast

from aladin_index.engines.guard import EngineCall
from aladin_network.errors import AladinError
from aladin_network.graphs.threads import set_compute_threads
from aladin_service.observe.logs import LogSetup, log_to_stderr
from aladin_service.work.health import LiveState
from aladin_service.work.messages import (
    Attempting,
    Begun,
    Done,
    RetryCrashing,
    Run,
    Status,
    UnforeseenError,
    Unwanted,
    Wire,
)
from aladin_service.work.process_setup import (
    freeze_loaded_objects,
    limit_free_memory,
    silence_decoders,
    trim_memory_regularly,
)
from aladin_service.work.worker import JOB_QUEUES, Job, Worker, WorkerPlan, without_traceback
from aladin_training.parallel.parent import end_with_parent

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# Interval between two status messages. An index that is published while there are no requests is
# opened within it.
STATUS_S = 0.5
# The main process has priority: it has to refuse requests and to report metrics even when all
# processors encode.
NICENESS = 5


def run_worker(plan: WorkerPlan, connected: socket.socket, logs: LogSetup) -> NoReturn:
    """Run a worker until the service closes its end of the socket or ends."""
    limit_free_memory()
    end_with_parent()
    os.nice(NICENESS)
    log_to_stderr(logs)
    silence_decoders()
    # Each batch has a thread of its own; more threads inside it would compete with the others.
    set_compute_threads(1)
    engine_calls: SimpleQueue[EngineCall] = SimpleQueue()
    wire = Wire(connected)
    worker = plan.make(engine_calls.put, lambda attempt: wire.send(Attempting(attempt)))
    worker.live.try_to_open()
    freeze_loaded_objects()
    trim_memory_regularly()
    _WorkerProcess(worker, wire, engine_calls).run(batch_threads=plan.settings.query_threads)


def try_plan(plan: WorkerPlan, logs: LogSetup) -> NoReturn:
    """Open the live generation as a worker does, and exit.

    The exit status is 0 if the generation can be served and 1 if opening it raises an error; a
    damaged file may also crash the process.
    """
    end_with_parent()
    os.nice(NICENESS)
    log_to_stderr(logs)
    set_compute_threads(1)
    try:
        worker = plan.make()
        worker.live.open()
        worker.check_detector()
    except Exception:  # the caller meets the same error and reports it
        os._exit(1)
    os._exit(0)


class _WorkerProcess:
    def __init__(self, worker: Worker, wire: Wire, engine_calls: SimpleQueue[EngineCall]) -> None:
        self._worker = worker
        self._wire = wire
        self._engine_calls = engine_calls
        self._batches: SimpleQueue[Run] = SimpleQueue()
        self._jobs: SimpleQueue[Run] = SimpleQueue()
        # Places of queued and running work that no client waits for, by number.
        self._unwanted: dict[int, set[int]] = {}
        self._reported: LiveState | None = None
        self._reporting = threading.Lock()

    def run(self, *, batch_threads: int) -> NoReturn:
        """Work until the service has ended."""
        _start_threads("batch", batch_threads, partial(self._do_next, self._batches))
        job_threads = sum(facts.threads for facts in JOB_QUEUES.values())
        _start_threads("job", job_threads, partial(self._do_next, self._jobs))
        _start_threads("status", 1, self._send_status)
        try:
            self._report_if_new()
            while True:
                self._receive()
        except (EOFError, BrokenPipeError):
            # A regular exit of the interpreter would wait for threads that still work. No client
            # waits for them, and the files on disk are consistent at every moment.
            os._exit(0)

    def _receive(self) -> None:
        match self._wire.receive():
            case Run(number, work) as message:
                self._unwanted[number] = set()
                (self._jobs if isinstance(work, Job) else self._batches).put(message)
            case Unwanted(number, place):
                # A thread may have finished the work meanwhile.
                self._unwanted.get(number, set[int]()).add(place)
            case RetryCrashing():
                self._worker.live.retry_crashing()
            case message:
                raise AssertionError(f"unknown message {message!r}")

    def _do_next(self, queue: SimpleQueue[Run]) -> None:
        message = queue.get()
        number, unwanted = message.number, self._unwanted[message.number]
        self._wire.send(Begun(number))
        result: Any = None
        error: Exception | None = None
        try:
            result = self._worker.do(message.work, lambda place: place not in unwanted)
            if isinstance(result, list):  # of a batch, with the errors of its queries
                answers = cast(list[object], result)
                result = [
                    _sendable(each) if isinstance(each, Exception) else each for each in answers
                ]
        except Exception as raised:
            error = _sendable(raised)
        del self._unwanted[number]
        self._report_if_new()
        try:
            self._wire.send(Done(number, result, error))
        except OSError:
            raise
        except Exception as raised:  # a result that cannot be pickled is no reason to exit
            self._wire.send(Done(number, error=_sendable(raised)))

    def _send_status(self) -> None:
        time.sleep(STATUS_S)
        self._worker.live.refresh()
        calls = tuple(self._engine_calls.get() for _ in range(self._engine_calls.qsize()))
        self._wire.send(Status(self._worker.live.state, calls))

    def _report_if_new(self) -> None:
        """Report a new generation before any answer that comes from it."""
        state = self._worker.live.state
        with self._reporting:
            if state != self._reported:
                self._wire.send(Status(state))
                self._reported = state


def _start_threads(name: str, count: int, work: Callable[[], None]) -> None:
    """Start threads that call a function repeatedly.

    Between two calls a thread holds no reference to the last piece of work: an error's traceback
    would keep a generation open, and a photo its memory.
    """

    def run() -> None:
        try:
            while True:
                work()
        except OSError:  # the service is gone, as the main thread has noticed
            os._exit(0)
        except BaseException:
            # A worker that lacks a thread would appear healthy and answer fewer and fewer requests.
            _LOG.exception("a thread of the worker process failed; the process exits")
            os._exit(1)

    for number in range(count):
        threading.Thread(target=run, name=f"{name}-{number}", daemon=True).start()


def _sendable(result: T) -> T | Exception:
    """Make an error one that can be pickled: those of other packages become a traceback."""
    if not isinstance(result, Exception):
        return result
    if not isinstance(result, AladinError):
        return UnforeseenError("".join(traceback.format_exception(result)))
    return without_traceback(result)
