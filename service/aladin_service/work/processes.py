"""Workers that are processes: each has its own network and maps the same index.

Batches form in the service's own process, and a worker takes one as soon as it is free. A worker
that dies takes with it what it was at, no more: what waits goes to the others, and what it had been
sent and not begun is sent to another one.

Each worker takes up a new generation by itself, before the first batch or job that it begins after
that is live: whatever was acknowledged to one client, the next request of any other finds. Should a
worker refuse a generation that another has taken up, it gets no work until it has followed: no two
generations are answered from for longer than a status takes to come. Where all refuse it, all go
on with the one before, and so does a worker that is started then. So it is with one that ends the
workers that open or search it, see `aladin_service.work.crashing_generations`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from aladin_network.errors import NoWorkerError, OverloadedError, ShuttingDownError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, QueueName, SearchJob
from aladin_service.work.crashing_generations import CrashingGenerations
from aladin_service.work.job_queue import JobQueues, QueuedJob, WorkerSlot
from aladin_service.work.live_index import EngineStatus, LiveState
from aladin_service.work.process_start import TRIAL_S, end_process, start_trial
from aladin_service.work.query_queue import Batch, QueryQueue
from aladin_service.work.worker import LANE_THREADS, Job, WorkerPlan, max_waiting_jobs
from aladin_service.work.worker_link import WorkerLink
from aladin_service.work.workers import WorkersHealth

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# A worker that lived longer is replaced at once; after one that did not, the next one has to wait,
# twice as long each time: what kills every worker must not keep the machine busy as well.
_STABLE_S = 5.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.25, 30.0
# How often it is looked whether workers still talk, and whether one stays behind the others.
_LOOK_S = 0.5
# A worker that stays behind for so long is replaced: a new one may be luckier.
_BEHIND_S = 5.0
# Without any worker for so long, what waits is refused, and so is what comes, until there is one:
# a worker that only has to be replaced is there sooner, and nobody waits for one that never comes.
_MISSING_S = 5.0


class ProcessWorkers:
    """Keeps worker processes up, and gives them what waits in the lines."""

    def __init__(self, plan: WorkerPlan, metrics: Metrics) -> None:
        """Start no process yet.

        Args:
            plan: of each worker; its settings say how many there are.
            metrics: where batches, waiting queries and deaths are counted.
        """
        settings = plan.settings
        self._plan = plan
        self._metrics = metrics
        self._lines = QueryQueue(settings, metrics)
        self._jobs = JobQueues(max_waiting_jobs(settings))
        self._wanted = settings.workers
        self._links: dict[int, WorkerLink] = {}  # by place
        self._slots: dict[WorkerLink, list[WorkerSlot[Any]]] = {}
        self._leaving: list[WorkerSlot[Any]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._one_serves = asyncio.Event()
        self._served_s = time.monotonic()  # when it was last seen that one serves
        self._is_missing = False
        self._generation: int | None = None
        self._before: int | None = None  # the generation before that
        self._deadly = CrashingGenerations()
        self._trial: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start all workers; returns when each takes work, or has failed to for the first time."""
        tried = [asyncio.Event() for _ in range(self._wanted)]
        self._tasks = [
            asyncio.create_task(self._keep_up(place, event)) for place, event in enumerate(tried)
        ]
        self._tasks.append(asyncio.create_task(self._watch()))
        for event in tried:
            await event.wait()

    async def stop(self) -> None:
        """Fail what waits, cut off what still runs, and end the workers."""
        error = ShuttingDownError()
        self._lines.close()
        self._lines.fail_waiting(error)
        self._jobs.close(error)
        tasks = self._tasks if self._trial is None else [*self._tasks, self._trial]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        slots = [slot for slots in self._slots.values() for slot in slots]
        await asyncio.gather(*(slot.abort() for slot in (*slots, *self._leaving)))

    async def search(self, job: SearchJob) -> Answered:
        """Answer one query; see `Workers.search`."""
        return await self._lines.answer(job)

    def refusal(self, lane: QueueName) -> OverloadedError | NoWorkerError | None:
        """Say why a query would be refused; see `Workers.refusal`."""
        return self._lines.refusal(lane)

    async def call(self, job: Job[T]) -> T:
        """Do one job; see `Workers.call`."""
        return await self._jobs.do(job)

    def health(self) -> WorkersHealth:
        """Say how the workers are."""
        states = [link.live for link in self._links.values() if link.live is not None]
        generations = [state.generation for state in states if state.generation is not None]
        return WorkersHealth(
            wanted=self._wanted,
            alive=sum(self._can_serve(link) for link in self._links.values()),
            # While they take up a new one they differ; the last that changed has it.
            generation=self._generation if self._generation in generations else None,
            refused=next((state.refused for state in states if state.refused is not None), None),
            engine=_worst({state.engine for state in states}),
            pids={
                place: link.pid
                for place, link in self._links.items()
                if link.takes_work and link.pid is not None
            },
        )

    async def _keep_up(self, place: int, tried: asyncio.Event) -> None:
        """Have a worker at one place, one after the other if need be."""
        delay_s = 0.0
        while True:
            # Should what is live be unsound, a new worker goes on with what the others have.
            plan = replace(self._plan, fallback=self._generation, deadly=dict(self._deadly.reasons))
            link = WorkerLink(place, plan, self._on_change, self._metrics.engine_call)
            self._links[place] = link
            lived_s = 0.0
            try:
                lived_s = await self._live(link, tried)
            except (OSError, EOFError):  # the latter of a server of forks that dies meanwhile
                _LOG.exception("worker %d cannot be started", place)
            finally:
                how = await link.close()
                del self._links[place]
                self._assign()
            self._metrics.worker_died()
            self._learn(link, how)
            short = lived_s < _STABLE_S
            delay_s = min(max(_FIRST_DELAY_S, 2 * delay_s), _LONGEST_DELAY_S) if short else 0.0
            _LOG.error(
                "worker %d (process %s) ended after %.1f s: %s; another one is started in %g s",
                *(place, link.pid, lived_s, how, delay_s),
            )
            await asyncio.sleep(delay_s)
            self._metrics.worker_restarted()

    async def _live(self, link: WorkerLink, tried: asyncio.Event) -> float:
        """Have a worker from its start to its end; return how long it could take work."""
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
        """Kill workers that hang, and those that stay behind the others; end waiting for none."""
        behind_since_s: dict[WorkerLink, float] = {}
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            if self._one_serves.is_set():
                self._served_s = now
            elif now - self._served_s > _MISSING_S and not self._is_missing:
                _LOG.error("no worker has served for %g s: requests are refused", _MISSING_S)
                self._set_missing(True)
            if self._deadly.retry_is_due and (self._trial is None or self._trial.done()):
                self._trial = asyncio.create_task(self._try_again())
            behind = {link for link in self._links.values() if self._is_behind(link)}
            behind_since_s = {link: behind_since_s.get(link, now) for link in behind}
            for link in list(self._links.values()):
                if link.is_silent:
                    link.kill("it gives no sign of life")
                elif now - behind_since_s.get(link, now) > _BEHIND_S:
                    link.kill("it refuses a generation that other workers have taken up")

    def _learn(self, link: WorkerLink, how: str) -> None:
        """Refuse a generation that has ended a worker, where it is to blame for that."""
        links = self._links.values()
        if link.attempt is not None:
            attempt = link.attempt
            others_can = any(other.opened == attempt for other in links)
            is_refused = not others_can and self._deadly.ended_opening(attempt, how)
        elif link.opened is not None and self._before not in (None, link.opened.generation):
            attempt = link.opened
            is_refused = self._deadly.ended_searching(attempt, how)
        else:
            return
        if not is_refused:
            return
        reason = self._deadly.reasons[attempt]
        _LOG.error("generation %d is refused: %s", attempt.generation, reason)
        if self._generation == attempt.generation:
            self._generation = self._before
        for other in links:
            if other.opened == attempt:
                other.kill("it answers from a generation that is refused")

    async def _try_again(self) -> None:
        """Open what is published in a process of its own, for workers may end by it."""
        try:
            process = await asyncio.to_thread(start_trial, self._plan)
        except (OSError, EOFError):
            _LOG.exception("what is published cannot be opened by way of trial")
            self._deadly.retried("never started")
            return
        try:
            async with asyncio.timeout(TRIAL_S):
                while process.exitcode is None:
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            process.kill()
        finally:
            how = await asyncio.to_thread(end_process, process)
        _LOG.info("what is published was opened once more, by way of trial: %s", how)
        if self._deadly.retried(how):
            self._forgive()

    def _forgive(self) -> None:
        for link in self._links.values():
            link.forgive()

    def _on_change(self, link: WorkerLink, before: LiveState | None) -> None:
        if link.live is not None and (before is None or before.generation != link.live.generation):
            if link.live.generation not in (None, self._generation):
                self._before = self._generation
            self._generation = link.live.generation
        if link.opened is not None and self._deadly.opened(link.opened):
            self._forgive()
        self._assign()

    def _assign(self) -> None:
        """Let each worker that can serve take work, and no other."""
        serving = [link for link in self._links.values() if self._can_serve(link)]
        for link in [link for link in self._slots if link not in serving]:
            stopped = self._slots.pop(link)
            for slot in stopped:
                slot.stop()
            # Those that are at something end by themselves.
            self._leaving = [slot for slot in (*self._leaving, *stopped) if not slot.has_ended]
        for link in serving:
            if link not in self._slots:
                self._slots[link] = self._slots_of(link)
        if serving:
            self._served_s = time.monotonic()
            self._one_serves.set()
            self._set_missing(False)
        else:
            self._one_serves.clear()

    def _set_missing(self, missing: bool) -> None:  # it is all that is said
        self._is_missing = missing
        self._lines.set_worker_missing(missing)
        self._jobs.set_worker_missing(missing)

    def _can_serve(self, link: WorkerLink) -> bool:
        return link.takes_work and not self._is_behind(link)

    def _is_behind(self, link: WorkerLink) -> bool:
        """Whether a worker refuses a generation that another one has taken up."""
        if link.live is None or link.live.refused_generation is None:
            return False
        return any(
            other.live is not None and other.live.generation == link.live.refused_generation
            for other in self._links.values()
        )

    def _slots_of(self, link: WorkerLink) -> list[WorkerSlot[Any]]:
        batches = [
            WorkerSlot(self._lines.next_batch, partial(self._answer, link))
            for _ in range(self._plan.settings.query_threads)
        ]
        jobs = [
            WorkerSlot(self._jobs.line(lane).next_job, partial(self._do, link))
            for lane, threads in LANE_THREADS.items()
            for _ in range(threads)
        ]
        return [*batches, *jobs]

    async def _answer(self, link: WorkerLink, batch: Batch) -> None:
        while not await link.answer(batch):
            another = await self._another()
            if another is None:
                batch.fail_rest(NoWorkerError())
                return
            link = another

    async def _do(self, link: WorkerLink, waiting: QueuedJob) -> None:
        while not await link.do(waiting):
            another = await self._another()
            if another is None:
                waiting.fail(NoWorkerError())
                return
            link = another

    async def _another(self) -> WorkerLink | None:
        """Wait for a worker to which work can be sent that another one has not begun.

        Returns:
            The worker; None where there is none for too long.
        """
        while not self._one_serves.is_set():
            if self._is_missing:
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._one_serves.wait()
        return next(iter(self._slots))


def _worst(standings: set[EngineStatus | None]) -> EngineStatus | None:
    """Say how an engine is of which each worker says how it is to it."""
    for standing in ("away", "up"):
        if standing in standings:
            return standing
    return None
