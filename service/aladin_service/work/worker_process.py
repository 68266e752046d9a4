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
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NoReturn

from aladin_index.engines.guard import EngineCall
from aladin_network.errors import AladinError
from aladin_network.graphs.threads import set_compute_threads
from aladin_service.observe.logs import LogSetup, log_to_stderr
from aladin_service.search.job import WorkAnswer
from aladin_service.work.live_state import LiveState
from aladin_service.work.messages import (
    Attempting,
    Begun,
    Done,
    RetryCrashing,
    RunBatch,
    RunJob,
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
from aladin_service.work.worker import JOB_THREADS, Worker, WorkerPlan, without_traceback
from aladin_training.parallel.parent import end_with_parent

_LOG = logging.getLogger(__name__)

# Interval between two status messages. An index that is published while there are no requests is
# opened within it.
STATUS_S = 0.5
# The main process has priority: it has to refuse requests and to report metrics even when all
# processors encode.
NICENESS = 5


def run_worker(plan: WorkerPlan, connected: socket.socket, logs: LogSetup) -> NoReturn:
    """Run a worker until the service closes its end of the socket or ends.

    Args:
        plan: Plan of the worker.
        connected: The worker's end of the socket.
        logs: Log settings.
    """
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

    Args:
        plan: Plan of the worker.
        logs: Log settings.
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


@dataclass(eq=False)
class _Batch:
    """A batch, and the positions of its queries that are no longer wanted."""

    message: RunBatch
    unwanted: set[int] = field(default_factory=set[int])

    def is_wanted(self, place: int) -> bool:
        """Return whether a client waits for the answer."""
        return place not in self.unwanted


@dataclass(eq=False)
class _Job:
    """A job, and whether its result is no longer wanted."""

    message: RunJob
    unwanted: bool = False

    def is_wanted(self) -> bool:
        """Return whether a client waits for the result."""
        return not self.unwanted


class _WorkerProcess:
    def __init__(self, worker: Worker, wire: Wire, engine_calls: SimpleQueue[EngineCall]) -> None:
        self._worker = worker
        self._wire = wire
        self._engine_calls = engine_calls
        self._batches: dict[int, _Batch] = {}  # queued and running ones by number
        self._batch_queue: SimpleQueue[_Batch] = SimpleQueue()
        self._jobs: dict[int, _Job] = {}  # likewise
        self._job_queue: SimpleQueue[_Job] = SimpleQueue()
        self._reported: LiveState | None = None
        self._reporting = threading.Lock()

    def run(self, *, batch_threads: int) -> NoReturn:
        """Work until the service has ended."""
        _start_threads("batch", batch_threads, self._answer_next_batch)
        _start_threads("job", JOB_THREADS, self._do_next_job)
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
            case RunBatch() as message:
                new = _Batch(message)
                self._batches[message.number] = new
                self._batch_queue.put(new)
            case RunJob() as message:
                job = self._jobs[message.number] = _Job(message)
                self._job_queue.put(job)
            case Unwanted(number, place):
                batch = self._batches.get(number)  # None if a thread has finished it
                if batch is not None:
                    batch.unwanted.add(place)
                running = self._jobs.get(number)
                if running is not None:
                    running.unwanted = True
            case RetryCrashing():
                self._worker.live.retry_crashing()
            case message:
                raise AssertionError(f"unknown message {message!r}")

    def _answer_next_batch(self) -> None:
        batch = self._batch_queue.get()
        number = batch.message.number
        self._wire.send(Begun(number))

        answers: list[WorkAnswer | Exception | None] = []
        error: Exception | None = None
        try:
            found = self._worker.answer(batch.message.jobs, batch.is_wanted)
            answers = [_sendable(each) if isinstance(each, Exception) else each for each in found]
        except Exception as raised:
            error = _sendable(raised)
        del self._batches[number]
        self._report_if_new()
        self._wire.send(Done(number, answers, error))

    def _do_next_job(self) -> None:
        job = self._job_queue.get()
        message = job.message
        self._wire.send(Begun(message.number))
        result: Any = None
        error: Exception | None = None
        try:
            result = self._worker.do(message.job, job.is_wanted)
        except Exception as raised:
            error = _sendable(raised)
        del self._jobs[message.number]
        self._report_if_new()
        try:
            self._wire.send(Done(message.number, result, error))
        except OSError:
            raise
        except Exception as raised:  # a result that cannot be pickled is no reason to exit
            self._wire.send(Done(message.number, error=_sendable(raised)))

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


def _sendable(error: Exception) -> Exception:
    """Return an error that can be pickled: errors of other packages become a traceback."""
    if not isinstance(error, AladinError):
        return UnforeseenError("".join(traceback.format_exception(error)))
    return without_traceback(error)
