"""Workers that are processes: each has its own network and maps the same index files.

Batches form in the service's own process, and a worker takes one as soon as it is free. When a
worker dies, only the work that it had started is lost: waiting work goes to the other workers, and
so does work that it had been sent and had not started.

Each worker opens a new generation by itself, before the first batch or job that it starts after the
publication, so that whatever was acknowledged to one client is found by the next request of any
other. A worker that refuses a generation which another has opened gets no work until it has caught
up: answers come from two generations for no longer than a status message takes. If all workers
refuse a generation, all of them go on with the previous one, and so does a worker that is started
then. The same holds for a generation that crashes the workers which open or search it; see
`aladin_service.work.crashing_generations`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from functools import partial
from typing import Any

from aladin_network.errors import NoWorkerError, ShuttingDownError
from aladin_service.observe.metrics import Metrics
from aladin_service.work.crashing_generations import CrashingGenerations
from aladin_service.work.health import EngineStatus, LiveState, WorkersHealth
from aladin_service.work.process_start import TRIAL_S, end_process, start_trial
from aladin_service.work.queues import Taken
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.worker_link import WorkerLink
from aladin_service.work.workers import Queues, WorkerSlot

_LOG = logging.getLogger(__name__)

# A worker that lived longer is replaced at once. Otherwise its replacement is delayed. The delay
# doubles each time, so that a fault that ends every worker does not keep the processors busy.
_STABLE_S = 5.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.25, 30.0
# Interval of the checks for workers that are silent or behind the others.
_CHECK_S = 0.5
# A worker that is behind for longer is replaced, because a new process may be able to catch up.
_BEHIND_S = 5.0
# After this time without any worker, all waiting and new requests are refused until there is one:
# replacing a worker takes less time, and no client should wait for a worker that never starts.
_MISSING_S = 5.0
# States of the vector database, the worst first: the service has that of its worst worker.
_ENGINE_STATES: tuple[EngineStatus, ...] = ("unavailable", "up")


class ProcessWorkers:
    """Keeps worker processes running and sends them the queued work; its plan has their number."""

    def __init__(self, plan: WorkerPlan, metrics: Metrics) -> None:
        settings = plan.settings
        self._plan = plan
        self._metrics = metrics
        self._queues = Queues(settings, metrics)
        # The queues are what the routes wait in, see `Workers`.
        self.search = self.encode = self._queues.queries.answer
        self.refusal = self._queues.queries.refusal
        self.call = self._queues.call
        self._wanted = settings.workers
        self._links: dict[int, WorkerLink] = {}  # by worker number
        self._slots: dict[WorkerLink, list[WorkerSlot]] = {}
        self._leaving: list[WorkerSlot] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._one_serves = asyncio.Event()
        self._served_s = time.monotonic()  # when a worker was last able to serve
        self._is_missing = False
        self._generation: int | None = None
        self._before: int | None = None  # the previous generation
        self._crashing = CrashingGenerations()
        self._trial: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start all workers; returns when each has accepted work or failed to start once."""
        tried = [asyncio.Event() for _ in range(self._wanted)]
        self._tasks = [
            asyncio.create_task(self._keep_up(place, event)) for place, event in enumerate(tried)
        ]
        self._tasks.append(asyncio.create_task(self._watch()))
        for event in tried:
            await event.wait()

    async def stop(self) -> None:
        """Fail waiting work, cancel running work, and end the workers."""
        self._queues.close()
        self._queues.queries.fail_waiting(ShuttingDownError())
        tasks = self._tasks if self._trial is None else [*self._tasks, self._trial]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        slots = [slot for slots in self._slots.values() for slot in slots]
        await asyncio.gather(*(slot.abort() for slot in (*slots, *self._leaving)))

    def health(self) -> WorkersHealth:
        """Return the state of the workers."""
        states = [link.live for link in self._links.values() if link.live is not None]
        # While workers open a new generation they differ; the worker that changed last already has
        # it.
        is_live = any(state.generation == self._generation for state in states)
        refusing = next((state for state in states if state.refused is not None), LiveState(None))
        engines = {state.engine for state in states}
        return WorkersHealth(
            wanted=self._wanted,
            alive=sum(self._can_serve(link) for link in self._links.values()),
            generation=self._generation if is_live else None,
            refused_generation=refusing.refused_generation,
            refused=refusing.refused,
            engine=next((each for each in _ENGINE_STATES if each in engines), None),
            pids={
                place: link.pid
                for place, link in self._links.items()
                if link.takes_work and link.pid is not None
            },
        )

    async def _keep_up(self, place: int, tried: asyncio.Event) -> None:
        """Keep one worker running at a place, replacing it whenever it ends."""
        delay_s = 0.0
        while True:
            # If the published generation is invalid, a new worker serves that of the others.
            crashing = dict(self._crashing.reasons)
            plan = replace(self._plan, fallback=self._generation, crashing=crashing)
            link = WorkerLink(place, plan, self._on_change, self._metrics.engine_call)
            self._links[place] = link
            lived_s = 0.0
            try:
                lived_s = await self._live(link, tried)
            except (OSError, EOFError):  # EOFError if the fork server dies meanwhile
                _LOG.exception("cannot start worker %d", place)
            finally:
                how = await link.close()
                del self._links[place]
                self._assign()
            self._metrics.worker_died()
            self._learn(link, how)
            short = lived_s < _STABLE_S
            delay_s = min(max(_FIRST_DELAY_S, 2 * delay_s), _LONGEST_DELAY_S) if short else 0.0
            _LOG.error(
                "worker %d (process %s) ended after %.1f s: %s; starting another one in %g s",
                *(place, link.pid, lived_s, how, delay_s),
            )
            await asyncio.sleep(delay_s)
            self._metrics.worker_restarted()

    async def _live(self, link: WorkerLink, tried: asyncio.Event) -> float:
        """Run a worker until it ends; return the seconds during which it accepted work."""
        try:
            await link.start()
            await link.ready.wait()
        finally:
            tried.set()
        ready_s = time.monotonic()
        if not link.takes_work:
            return 0.0
        _LOG.info("worker %d is up (process %d)", link.place, link.pid)
        await link.ended.wait()
        return time.monotonic() - ready_s

    async def _watch(self) -> None:
        """Kill workers that are silent or behind; refuse requests if there is no worker."""
        behind_since_s: dict[WorkerLink, float] = {}
        while True:
            await asyncio.sleep(_CHECK_S)
            now = time.monotonic()
            if self._one_serves.is_set():
                self._served_s = now
            elif now - self._served_s > _MISSING_S and not self._is_missing:
                _LOG.error("no worker available for %g s: rejecting requests", _MISSING_S)
                self._set_missing(True)
            if self._crashing.retry_is_due and (self._trial is None or self._trial.done()):
                self._trial = asyncio.create_task(self._open_by_trial())
            behind = {link for link in self._links.values() if self._is_behind(link)}
            behind_since_s = {link: behind_since_s.get(link, now) for link in behind}
            for link in list(self._links.values()):
                if link.is_silent:
                    link.kill("no sign of life")
                elif now - behind_since_s.get(link, now) > _BEHIND_S:
                    link.kill("it refuses a generation that other workers have opened")

    def _learn(self, link: WorkerLink, how: str) -> None:
        """Refuse a generation if it is to blame for the end of a worker."""
        links = self._links.values()
        if link.attempt is not None:
            attempt = link.attempt
            others_can = any(other.opened == attempt for other in links)
            is_refused = not others_can and self._crashing.ended_opening(attempt, how)
        elif link.opened is not None and self._before not in (None, link.opened.generation):
            attempt = link.opened
            is_refused = self._crashing.ended_searching(attempt, how)
        else:
            return
        if not is_refused:
            return
        reason = self._crashing.reasons[attempt]
        _LOG.error("refusing generation %d: %s", attempt.generation, reason)
        if self._generation == attempt.generation:
            self._generation = self._before
        for other in links:
            if other.opened == attempt:
                other.kill("it serves a generation that is now refused")

    async def _open_by_trial(self) -> None:
        """Open the published generation in a separate process, which may crash."""
        try:
            process = await asyncio.to_thread(start_trial, self._plan)
        except (OSError, EOFError):
            _LOG.exception("cannot start the trial of the published generation")
            self._crashing.retried("never started")
            return
        try:
            async with asyncio.timeout(TRIAL_S):
                while process.exitcode is None:
                    await asyncio.sleep(_CHECK_S)
        except TimeoutError:
            process.kill()
        finally:
            how = await asyncio.to_thread(end_process, process)
        _LOG.info("trial of the published generation ended: %s", how)
        if self._crashing.retried(how):
            self._retry_crashing()

    def _retry_crashing(self) -> None:
        for link in self._links.values():
            link.retry_crashing()

    def _on_change(self, link: WorkerLink, before: LiveState | None) -> None:
        if link.live is not None and (before is None or before.generation != link.live.generation):
            if link.live.generation not in (None, self._generation):
                self._before = self._generation
            self._generation = link.live.generation
        if link.opened is not None and self._crashing.opened(link.opened):
            self._retry_crashing()
        self._assign()

    def _assign(self) -> None:
        """Let exactly those workers take work that are able to serve."""
        serving = [link for link in self._links.values() if self._can_serve(link)]
        for link in [link for link in self._slots if link not in serving]:
            stopped = self._slots.pop(link)
            for slot in stopped:
                slot.stop()
            # Slots that are busy stop when they have finished.
            self._leaving = [slot for slot in (*self._leaving, *stopped) if not slot.has_ended]
        for link in serving:
            if link not in self._slots:
                run = partial(self._run, link)
                self._slots[link] = [
                    WorkerSlot(take, run) for take in self._queues.takes().values()
                ]
        if serving:
            self._served_s = time.monotonic()
            self._one_serves.set()
            self._set_missing(False)
        else:
            self._one_serves.clear()

    def _set_missing(self, missing: bool) -> None:
        self._is_missing = missing
        self._queues.set_worker_missing(missing)

    def _can_serve(self, link: WorkerLink) -> bool:
        return link.takes_work and not self._is_behind(link)

    def _is_behind(self, link: WorkerLink) -> bool:
        """Return whether a worker refuses a generation that another one has opened."""
        if link.live is None or link.live.refused_generation is None:
            return False
        return any(
            other.live is not None and other.live.generation == link.live.refused_generation
            for other in self._links.values()
        )

    async def _run(self, link: WorkerLink, taken: Taken[Any]) -> None:
        while not await link.run(taken):
            another = await self._another()
            if another is None:
                taken.finish(NoWorkerError())
                return
            link = another

    async def _another(self) -> WorkerLink | None:
        """Wait for a worker that takes what another has not started; None if none comes in time."""
        while not self._one_serves.is_set():
            if self._is_missing:
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await self._one_serves.wait()
        return next(iter(self._slots))
