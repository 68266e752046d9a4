"""The service's end of one worker process: sends work, receives results, detects its end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from typing import Any

from aladin_index.engines.guard import OnCall, ignore_call
from aladin_network.errors import WorkerDiedError
from aladin_service.work.crashing_generations import Attempt
from aladin_service.work.job_queue import QueuedJob
from aladin_service.work.live_state import LiveState
from aladin_service.work.messages import (
    Attempting,
    Begun,
    Done,
    RetryCrashing,
    RunBatch,
    RunJob,
    Status,
    Unwanted,
    pack,
    read_message,
)
from aladin_service.work.process_start import end_process, start_process
from aladin_service.work.query_queue import Batch
from aladin_service.work.worker import WorkerPlan

_LOG = logging.getLogger(__name__)

# Interval of the checks on a running batch: whether it hangs, and which clients have disconnected.
_CHECK_S = 0.02
# Importing everything takes seconds on a busy machine, and loading a large network takes longer.
_START_S = 120.0


@dataclass(eq=False)
class _Sent:
    """A batch or a job that was sent to the worker.

    Attributes:
        done: Future of the worker's final message, or of None if the worker ended before.
        begun_s: When the worker started it, by `time.monotonic`, or None if it has not.
    """

    done: asyncio.Future[Done | None]
    begun_s: float | None = None


# Called with the worker and its previous state.
OnChange = Callable[["WorkerLink", LiveState | None], None]


class WorkerLink:
    """One worker process, from its start to its end; for the event loop only.

    Attributes:
        place: Number of the worker, for the log.
        live: State of its index as last reported.
        ready: Set when the worker first accepts work, and when it ends without having done so.
        attempt: Generation that the worker is opening, or None.
        ended: Set when the process is gone; everything it had been sent is then settled.
        pid: Process id, or None before the start.
    """

    def __init__(
        self,
        place: int,
        plan: WorkerPlan,
        on_change: OnChange,
        on_engine_call: OnCall = ignore_call,
    ) -> None:
        """Create the link without starting a process.

        Args:
            place: Number of the worker.
            plan: Plan of the worker.
            on_change: Called when the worker has reported another state, and at its end.
            on_engine_call: Called for each call of the vector database that the worker reports.
        """
        self.place = place
        self.live: LiveState | None = None
        self.attempt: Attempt | None = None
        self._attempted: Attempt | None = None
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.pid: int | None = None
        self._plan = plan
        self._on_change = on_change
        self._on_engine_call = on_engine_call
        self._timeout_s = plan.settings.job_timeout_s
        self._numbers = itertools.count()
        self._sent: dict[int, _Sent] = {}
        self._process: ForkServerProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._heard_s = time.monotonic()

    @property
    def takes_work(self) -> bool:
        """Whether the worker accepts work."""
        return self.live is not None and not self.ended.is_set()

    @property
    def opened(self) -> Attempt | None:
        """The attempt that opened the live generation of the worker, or None if unknown."""
        last = self._attempted
        if last is None or self.live is None or self.live.generation != last.generation:
            return None
        return None if self.attempt is not None else last

    @property
    def is_silent(self) -> bool:
        """Whether the worker has sent no message for longer than its timeout."""
        limit_s = _START_S if self.live is None else self._timeout_s
        return time.monotonic() - self._heard_s > limit_s

    async def start(self) -> None:
        """Start the process; it accepts work when `ready` is set.

        Raises:
            OSError: If the system cannot create another process.
            EOFError: If the fork server has died.
        """
        process, connected = await asyncio.to_thread(start_process, self._plan)
        self._process, self.pid = process, process.pid
        self._heard_s = time.monotonic()
        reader, self._writer = await asyncio.open_unix_connection(sock=connected)
        self._listening = asyncio.create_task(self._listen(reader))

    async def answer(self, batch: Batch) -> bool:
        """Send a batch to the worker and wait until it is done.

        Returns:
            Whether the batch is settled; False if the worker ended before it started the batch.
        """
        try:
            sent = self._send(lambda number: RunBatch(number, batch.jobs))
        except Exception as error:  # the batch cannot be pickled, and nothing was sent
            batch.finish(error)
            return True
        if sent is None:
            return False
        number, record = sent
        reported: set[int] = set()
        while not record.done.done():
            await asyncio.wait([record.done], timeout=_CHECK_S)
            begun_s = record.begun_s
            if begun_s is not None and time.monotonic() - begun_s > self._timeout_s:
                self.kill(f"a batch took longer than {self._timeout_s:g} s")
            for place in range(len(batch.jobs)):
                if place not in reported and not record.done.done() and not batch.is_wanted(place):
                    reported.add(place)
                    self._write(pack(Unwanted(number, place)))
        done = record.done.result()
        if done is None:
            if record.begun_s is None:
                return False
            batch.finish(WorkerDiedError())
        elif done.error is None:
            await batch.deliver(done.result)
        else:
            batch.finish(done.error)
        return True

    async def do(self, waiting: QueuedJob) -> bool:
        """Send a job to the worker and wait until it is done.

        Returns:
            Whether the job is settled; False if the worker ended before it started the job.
        """
        try:
            sent = self._send(lambda number: RunJob(number, waiting.job))
        except Exception as error:  # the job cannot be pickled, and nothing was sent
            waiting.fail(error)
            return True
        if sent is None:
            return False
        number, record = sent

        def withdraw(result: asyncio.Future[Any]) -> None:
            if result.cancelled() and not record.done.done():
                self._write(pack(Unwanted(number, 0)))

        waiting.result.add_done_callback(withdraw)
        done = await record.done
        if done is None:
            if record.begun_s is None:
                return False
            waiting.fail(WorkerDiedError())
        elif done.error is not None:
            waiting.fail(done.error)
        else:
            waiting.settle(done.result)
        return True

    def retry_crashing(self) -> None:
        """Let the worker retry generations that crashed other workers."""
        if self._writer is not None and not self.ended.is_set():
            self._write(pack(RetryCrashing()))

    def kill(self, why: str) -> None:
        """Kill the process, whatever it is doing."""
        if self._process is not None and not self.ended.is_set():
            _LOG.error("killing worker %d (process %d): %s", self.place, self.pid, why)
            self._process.kill()

    async def close(self) -> str:
        """End the process if it has not ended, and release its resources.

        Returns:
            How it ended: the name of a signal, or the exit status.
        """
        if self._writer is not None:
            self._writer.close()
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
        if self._process is None:
            return "never started"
        process, self._process = self._process, None
        return await asyncio.to_thread(end_process, process)

    def _send(self, message: Callable[[int], object]) -> tuple[int, _Sent] | None:
        """Send work to the worker.

        Returns:
            Number and record of the work, or None if the worker has ended.

        Raises:
            Exception: If the message cannot be packed, see `pack`.
        """
        if not self.takes_work:
            return None
        number = next(self._numbers)
        data = pack(message(number))
        done: asyncio.Future[Done | None] = asyncio.get_running_loop().create_future()
        record = self._sent[number] = _Sent(done)
        self._write(data)
        return number, record

    def _write(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                message = await read_message(reader)
                self._heard_s = time.monotonic()
                self._handle(message)
        except EOFError:
            pass
        except Exception:
            _LOG.exception("worker %d sent an invalid message", self.place)
        finally:
            self.ended.set()
            self.ready.set()
            for record in self._sent.values():
                if not record.done.done():
                    record.done.set_result(None)
            self._sent.clear()
            self._on_change(self, self.live)

    def _handle(self, message: Any) -> None:
        match message:
            case Status(live, engine_calls):
                for call in engine_calls:
                    self._on_engine_call(call)
                before, self.live = self.live, live
                self.ready.set()
                if live != before:
                    self._on_change(self, before)
            case Attempting(attempt):
                self.attempt = attempt
                self._attempted = attempt or self._attempted
            case Begun(number):
                self._sent[number].begun_s = time.monotonic()
            case Done(number):
                record = self._sent.pop(number)
                if not record.done.done():
                    record.done.set_result(message)
            case _:
                raise AssertionError(f"unknown message {message!r}")
