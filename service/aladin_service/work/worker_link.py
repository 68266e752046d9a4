"""The service's end of one worker process: sends it work, hears what became of it, sees it end."""

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
from aladin_service.search.job import Answered
from aladin_service.work.crashing_generations import Attempt
from aladin_service.work.job_queue import QueuedJob
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
    Unwanted,
    pack,
    read_message,
)
from aladin_service.work.process_start import end_process, start_process
from aladin_service.work.query_queue import Batch
from aladin_service.work.worker import WorkerPlan

_LOG = logging.getLogger(__name__)

# How often a running batch is looked at: whether it hangs, and who has hung up meanwhile.
_LOOK_S = 0.02
# To import everything takes seconds on a busy machine, to load a large network some more.
_START_S = 120.0


@dataclass(eq=False)
class _Sent:
    """A batch or a job that the worker has been sent.

    Attributes:
        done: what it said; None where the worker ended before.
        on_answer: told of each answered query.
        begun_s: when the worker began with it, by `time.monotonic`; None: it has not.
    """

    done: asyncio.Future[Done | None]
    on_answer: Callable[[int, Answered | Exception], None] | None = None
    begun_s: float | None = None


# Given the worker, and what it said of its index before.
OnChange = Callable[["WorkerLink", LiveState | None], None]


class WorkerLink:
    """One worker process, from its start to its end; for the event loop alone.

    Attributes:
        place: that the process fills, for the log.
        live: what it says of its index.
        ready: set when it takes work for the first time, and when it ends without.
        attempt: the generation that it is opening; None: none.
        ended: set when it is gone; everything it had been sent is settled then.
        pid: of the process; None before its start.
    """

    def __init__(
        self,
        place: int,
        plan: WorkerPlan,
        on_change: OnChange,
        on_engine_call: OnCall = ignore_call,
    ) -> None:
        """Start nothing yet.

        Args:
            place: among the workers.
            plan: of the worker.
            on_change: called when it has said that its index is in another state, and at its end.
            on_engine_call: told of each call that it has made of an engine.
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
        """Whether it is up."""
        return self.live is not None and not self.ended.is_set()

    @property
    def opened(self) -> Attempt | None:
        """How it has opened what it answers from, as far as is known."""
        last = self._attempted
        if last is None or self.live is None or self.live.generation != last.generation:
            return None
        return None if self.attempt is not None else last

    @property
    def is_silent(self) -> bool:
        """Whether it has given no sign of life for longer than it may."""
        limit_s = _START_S if self.live is None else self._timeout_s
        return time.monotonic() - self._heard_s > limit_s

    async def start(self) -> None:
        """Start the process; it takes work when `ready` is set.

        Raises:
            OSError: the system has no room for another process.
            EOFError: the server of forks has died.
        """
        process, connected = await asyncio.to_thread(start_process, self._plan)
        self._process, self.pid = process, process.pid
        self._heard_s = time.monotonic()
        reader, self._writer = await asyncio.open_unix_connection(sock=connected)
        self._listening = asyncio.create_task(self._listen(reader))

    async def answer(self, batch: Batch) -> bool:
        """Have the worker answer a batch, and wait until it is through.

        Returns:
            Whether the batch is settled; False: the worker ended before it began with it.
        """
        try:
            sent = self._send(lambda number: RunBatch(number, batch.jobs), batch.settle)
        except Exception as error:  # of what cannot be pickled: nothing was sent
            batch.fail_rest(error)
            return True
        if sent is None:
            return False
        number, record = sent
        told: set[int] = set()
        while not record.done.done():
            await asyncio.wait([record.done], timeout=_LOOK_S)
            begun_s = record.begun_s
            if begun_s is not None and time.monotonic() - begun_s > self._timeout_s:
                self.kill(f"a batch took longer than {self._timeout_s:g} s")
            for place in range(len(batch.jobs)):
                if place not in told and not record.done.done() and not batch.is_wanted(place):
                    told.add(place)
                    self._write(pack(Unwanted(number, place)))
        done = record.done.result()
        if done is None:
            if record.begun_s is None:
                return False
            batch.fail_rest(WorkerDiedError())
        elif done.error is not None:
            for place in range(len(batch.jobs)):
                if batch.is_wanted(place):
                    batch.settle(place, done.error)
        batch.finish()
        return True

    async def do(self, waiting: QueuedJob) -> bool:
        """Have the worker do a job, and wait until it is through.

        Returns:
            Whether the job is settled; False: the worker ended before it began with it.
        """
        try:
            sent = self._send(lambda number: RunJob(number, waiting.job))
        except Exception as error:  # of what cannot be pickled: nothing was sent
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

    def forgive(self) -> None:
        """Let it open again what has ended other workers."""
        if self._writer is not None and not self.ended.is_set():
            self._write(pack(Forgiven()))

    def kill(self, why: str) -> None:
        """End the process now, whatever it is at."""
        if self._process is not None and not self.ended.is_set():
            _LOG.error("worker %d (process %d) is killed: %s", self.place, self.pid, why)
            self._process.kill()

    async def close(self) -> str:
        """End the process if it has not ended, and forget it.

        Returns:
            How it ended: the name of a signal, or its exit status.
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

    def _send(
        self,
        message: Callable[[int], object],
        on_answer: Callable[[int, Answered | Exception], None] | None = None,
    ) -> tuple[int, _Sent] | None:
        """Send work; None where the worker has ended.

        Raises:
            Exception: as `pack`.
        """
        if not self.takes_work:
            return None
        number = next(self._numbers)
        data = pack(message(number))
        done: asyncio.Future[Done | None] = asyncio.get_running_loop().create_future()
        record = self._sent[number] = _Sent(done, on_answer)
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
                self._hear(message)
        except EOFError:
            pass
        except Exception:
            _LOG.exception("worker %d said what cannot be understood", self.place)
        finally:
            self.ended.set()
            self.ready.set()
            for record in self._sent.values():
                if not record.done.done():
                    record.done.set_result(None)
            self._sent.clear()
            self._on_change(self, self.live)

    def _hear(self, message: Any) -> None:
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
            case PlacesAnswered(number, answers):
                on_answer = self._sent[number].on_answer
                assert on_answer is not None  # only batches have places
                for place, answer in answers:
                    on_answer(place, answer)
            case Done(number):
                record = self._sent.pop(number)
                if not record.done.done():
                    record.done.set_result(message)
            case _:
                raise AssertionError(f"unknown message {message!r}")
