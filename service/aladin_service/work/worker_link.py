"""The service's end of one worker process: sends work, receives results, detects its end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerProcess
from typing import Any

from aladin_index.engines.guard import OnCall, ignore_call
from aladin_network.errors import WorkerDiedError
from aladin_service.work.crashing_generations import Attempt
from aladin_service.work.health import LiveState
from aladin_service.work.messages import (
    Attempting,
    Begun,
    Done,
    RetryCrashing,
    Run,
    Status,
    Unwanted,
    pack,
    read_message,
)
from aladin_service.work.process_start import end_process, start_process
from aladin_service.work.queues import Taken
from aladin_service.work.worker import WorkerPlan

_LOG = logging.getLogger(__name__)

# Importing everything takes seconds on a busy machine, and loading a large network takes longer.
_START_S = 120.0


@dataclass(eq=False)
class _Sent:
    """Work that was sent to the worker.

    Attributes:
        is_timed: Whether the worker is killed when it takes too long.
        done: Future of the worker's final message, or of None if the worker ended before.
        begun: Whether the worker has started it.
        timer: Kills the worker.
    """

    is_timed: bool
    done: asyncio.Future[Done | None]
    begun: bool = False
    timer: asyncio.TimerHandle | None = None


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
        """Start the process, see `start_process`; it accepts work when `ready` is set."""
        process, connected = await asyncio.to_thread(start_process, self._plan)
        self._process, self.pid = process, process.pid
        self._heard_s = time.monotonic()
        reader, self._writer = await asyncio.open_unix_connection(sock=connected)
        self._listening = asyncio.create_task(self._listen(reader))

    async def run(self, taken: Taken[Any]) -> bool:
        """Send work to the worker and wait until it is done.

        Returns whether the work is settled; False if the worker ended before it started it.
        """
        if not self.takes_work:
            return False
        number = next(self._numbers)
        try:
            data = pack(Run(number, taken.work))
        except Exception as error:  # nothing was sent
            taken.finish(error)
            return True
        sent = _Sent(taken.is_timed, asyncio.get_running_loop().create_future())
        self._sent[number] = sent
        self._write(data)
        for place, waiting in enumerate(taken.waiting):
            waiting.result.add_done_callback(partial(self._withdraw, number, place))
        done = await sent.done
        if done is None:
            if sent.begun:
                taken.finish(WorkerDiedError())
            return sent.begun
        if done.error is None:
            await taken.deliver(done.result)
        else:
            taken.finish(done.error)
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
        """End the process if it has not ended; returns how it ended, see `end_process`."""
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

    def _withdraw(self, number: int, place: int, result: asyncio.Future[Any]) -> None:
        if result.cancelled() and number in self._sent:
            self._write(pack(Unwanted(number, place)))

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
            for sent in self._sent.values():
                self._end(sent, None)
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
                sent = self._sent[number]
                sent.begun = True
                if sent.is_timed:
                    why = f"a batch took longer than {self._timeout_s:g} s"
                    loop = asyncio.get_running_loop()
                    sent.timer = loop.call_later(self._timeout_s, self.kill, why)
            case Done(number):
                self._end(self._sent.pop(number), message)
            case _:
                raise AssertionError(f"unknown message {message!r}")

    def _end(self, sent: _Sent, done: Done | None) -> None:
        if sent.timer is not None:
            sent.timer.cancel()
        if not sent.done.done():
            sent.done.set_result(done)
