"""What runs in a worker process: it takes batches and jobs from the wire and answers them.

    main thread       reads messages, and ends the process when the service is gone
    batch threads     one batch each at a time
    job threads       one job each at a time, so that an upload never stands in front of queries
    status thread     says that the process lives, and takes up new generations while it idles

Whatever the service does not hear the end of is lost with the process: it has told its clients.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NoReturn

import torch

from aladin_index.engines.guard import EngineCall
from aladin_network.errors import AladinError
from aladin_service.observe.logs import LogSetup, log_to_stderr
from aladin_service.search.job import Answered
from aladin_service.work.live_index import LiveState
from aladin_service.work.messages import (
    Attempting,
    Begun,
    Done,
    Forgiven,
    PlacesAnswered,
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

_LOG = logging.getLogger(__name__)

# Between two signs of life. An index that is published while nobody asks is opened within it.
STATUS_S = 0.5
# The service's own process goes first: it has to refuse and to report also when every processor
# encodes.
NICENESS = 5

# Answers of a batch wait for each other so long: to send one wakes the service, which costs about
# as much as half a search.
_GATHER_S = 0.002

_PR_SET_PDEATHSIG = 1


def run_worker(plan: WorkerPlan, connected: socket.socket, logs: LogSetup) -> NoReturn:
    """Be a worker process, until the service closes its end of the wire or is gone.

    Args:
        plan: of the worker.
        connected: the worker's end of the wire.
        logs: how to write the log.
    """
    _end_with_the_service()
    limit_free_memory()
    os.nice(NICENESS)
    log_to_stderr(logs)
    silence_decoders()
    # Each batch runs on a thread of its own: more threads inside it would only fight.
    torch.set_num_threads(1)
    engine_calls: SimpleQueue[EngineCall] = SimpleQueue()
    wire = Wire(connected)
    worker = plan.make(engine_calls.put, lambda attempt: wire.send(Attempting(attempt)))
    worker.live.try_to_open()
    freeze_loaded_objects()
    trim_memory_regularly()
    _WorkerProcess(worker, wire, engine_calls).run(batch_threads=plan.settings.query_threads)


def try_plan(plan: WorkerPlan, logs: LogSetup) -> NoReturn:
    """Open what is live as a worker does, and end: by what it does to the process, if it does.

    The exit status is 0 where it can be served, and 1 where it cannot and an error says why.

    Args:
        plan: of the worker.
        logs: how to write the log.
    """
    _end_with_the_service()
    os.nice(NICENESS)
    log_to_stderr(logs)
    torch.set_num_threads(1)
    try:
        worker = plan.make()
        worker.live.open()
        worker.check_detector()
    except Exception:  # whoever asked meets it, too, and tells it
        os._exit(1)
    os._exit(0)


@dataclass(eq=False)
class _Batch:
    """A batch, and which of its queries are not wanted any more."""

    message: RunBatch
    unwanted: set[int] = field(default_factory=set[int])

    def is_wanted(self, place: int) -> bool:
        """Whether somebody waits for the answer."""
        return place not in self.unwanted


@dataclass(eq=False)
class _Job:
    """A job, and whether its result is not wanted any more."""

    message: RunJob
    unwanted: bool = False

    def is_wanted(self) -> bool:
        """Whether somebody waits for the result."""
        return not self.unwanted


class _WorkerProcess:
    def __init__(self, worker: Worker, wire: Wire, engine_calls: SimpleQueue[EngineCall]) -> None:
        self._worker = worker
        self._wire = wire
        self._engine_calls = engine_calls
        self._batches: dict[int, _Batch] = {}  # from when they come until they are done
        self._batch_queue: SimpleQueue[_Batch] = SimpleQueue()
        self._jobs: dict[int, _Job] = {}  # likewise
        self._job_queue: SimpleQueue[_Job] = SimpleQueue()
        self._said: LiveState | None = None
        self._saying = threading.Lock()

    def run(self, *, batch_threads: int) -> NoReturn:
        """Work until the service is gone."""
        _start_threads("batch", batch_threads, self._answer_next_batch)
        _start_threads("job", JOB_THREADS, self._do_next_job)
        _start_threads("status", 1, self._say_status)
        try:
            self._report_if_new()
            while True:
                self._receive()
        except (EOFError, BrokenPipeError):
            # Not through the interpreter's own end, which would wait for threads that still work:
            # nobody is there to be told, and what is on disk is whole at every moment.
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
                batch = self._batches.get(number)  # a thread may be through with it by now
                if batch is not None:
                    batch.unwanted.add(place)
                running = self._jobs.get(number)
                if running is not None:
                    running.unwanted = True
            case Forgiven():
                self._worker.live.forgive()
            case message:
                raise AssertionError(f"unknown message {message!r}")

    def _answer_next_batch(self) -> None:
        batch = self._batch_queue.get()
        number = batch.message.number
        self._wire.send(Begun(number))

        answers: list[tuple[int, Answered | Exception]] = []
        due_s = math.inf

        def emit(place: int, answer: Answered | Exception) -> None:
            nonlocal answers, due_s
            self._report_if_new()
            if isinstance(answer, Exception):
                answer = _for_the_service(answer)
            answers.append((place, answer))
            now = time.monotonic()
            if now >= due_s:
                self._wire.send(PlacesAnswered(number, answers))
                answers = []
            if len(answers) <= 1:
                due_s = now + _GATHER_S

        error: Exception | None = None
        try:
            self._worker.answer(batch.message.jobs, emit, batch.is_wanted)
        except Exception as raised:
            error = _for_the_service(raised)
        del self._batches[number]
        self._wire.send(PlacesAnswered(number, answers), Done(number, error=error))

    def _do_next_job(self) -> None:
        job = self._job_queue.get()
        message = job.message
        self._wire.send(Begun(message.number))
        result: Any = None
        error: Exception | None = None
        try:
            result = self._worker.do(message.job, job.is_wanted)
        except Exception as raised:
            error = _for_the_service(raised)
        del self._jobs[message.number]
        self._report_if_new()
        try:
            self._wire.send(Done(message.number, result, error))
        except OSError:
            raise
        except Exception as raised:  # what cannot be pickled is no reason to end
            self._wire.send(Done(message.number, error=_for_the_service(raised)))

    def _say_status(self) -> None:
        time.sleep(STATUS_S)
        self._worker.live.refresh()
        calls = tuple(self._engine_calls.get() for _ in range(self._engine_calls.qsize()))
        self._wire.send(Status(self._worker.live.state, calls))

    def _report_if_new(self) -> None:
        """Tell of a new generation before any answer that comes from it."""
        state = self._worker.live.state
        with self._saying:
            if state != self._said:
                self._wire.send(Status(state))
                self._said = state


def _start_threads(name: str, count: int, work: Callable[[], None]) -> None:
    """Have threads do a piece of work after the other.

    Between two pieces a thread refers to nothing of the last one: an error's traceback would keep a
    generation open, a photo its memory.
    """

    def run() -> None:
        try:
            while True:
                work()
        except OSError:  # the service is gone; the main thread has seen it, too
            os._exit(0)
        except BaseException:
            # A worker with a thread less would look sound and answer less and less.
            _LOG.exception("a thread of a worker process failed, so the process ends")
            os._exit(1)

    for number in range(count):
        threading.Thread(target=run, name=f"{name}-{number}", daemon=True).start()


def _for_the_service(error: Exception) -> Exception:
    """Return what the service is told of an error; others than our own may not travel."""
    if not isinstance(error, AladinError):
        return UnforeseenError("".join(traceback.format_exception(error)))
    return without_traceback(error)


def _end_with_the_service() -> None:
    """Have the kernel kill this process with the one that forked it, which ends with the service.

    The end of the wire tells the same, but not to a process that is stuck in native code.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
