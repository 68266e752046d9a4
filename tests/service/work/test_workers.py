"""Threads that answer what waits: they die, they are replaced, and they finish what they took."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import aladin_service.work.workers as thread_workers
from aladin_network.errors import (
    IndexNotReadyError,
    InputError,
    OverloadedError,
    ShuttingDownError,
    WorkerDiedError,
)
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, SearchJob, TextQuery, WorkAnswer
from aladin_service.settings import ServiceSettings
from aladin_service.work.jobs import GetItem
from aladin_service.work.worker import IsWanted, Job, Worker, WorkerPlan
from aladin_service.work.workers import ThreadWorkers, WorkerThread
from tests.service.searching import search_job

pytestmark = pytest.mark.anyio

Answers = list[WorkAnswer | Exception | None]


@dataclass(frozen=True)
class Hold(Job[str]):
    """Occupies its thread until it is let go."""

    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def run(self, worker: Worker) -> str:  # noqa: ARG002
        self.begun.set()
        assert self.go_on.wait(10)
        return "done"


class Die(Job[None]):
    """Ends its thread."""

    def run(self, worker: Worker) -> None:  # noqa: ARG002
        raise SystemExit


class Photo:
    """Stands for an upload."""


@dataclass(frozen=True)
class Refuse(Job[None]):
    """Fails as foreseen."""

    photo: Photo

    def run(self, worker: Worker) -> None:  # noqa: ARG002
        raise InputError("damaged")


class Fail(Job[None]):
    """Fails as nobody foresaw."""

    def run(self, worker: Worker) -> None:  # noqa: ARG002
        raise ZeroDivisionError


@asynccontextmanager
async def running(index: Path, **settings: Any) -> AsyncGenerator[tuple[ThreadWorkers, Worker]]:
    chosen = ServiceSettings(**settings)
    worker = WorkerPlan(index=index, settings=chosen).make()
    workers = ThreadWorkers(worker, chosen, Metrics())
    async with asyncio.timeout(30):
        await workers.start()
        try:
            yield workers, worker
        finally:
            await workers.stop()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_queries_and_jobs_are_answered(index_folder: Path, image_ids: list[str]) -> None:
    async with running(index_folder) as (workers, _):
        answered = await workers.search(search_job(k=1))
        assert len(json.loads(answered.body)["hits"]) == 1
        assert (await workers.call(GetItem("images", image_ids[0]))).id == image_ids[0]
        health = workers.health()
        assert health.ready
        assert (health.alive, health.generation) == (health.wanted, 1)


async def test_without_an_index_queries_fail_and_the_workers_are_not_ready(tmp_path: Path) -> None:
    async with running(tmp_path / "nothing") as (workers, _):
        with pytest.raises(IndexNotReadyError):
            await workers.search(search_job(k=1))
        assert not workers.health().ready


async def test_a_query_cancelled_while_it_waits_is_not_answered(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(index_folder, query_threads=1, max_wait_ms=60_000) as (workers, worker):
        begun, go_on = threading.Event(), threading.Event()
        real, taken = worker.answer, list[str]()

        def slow(searcher: object, jobs: list[SearchJob], is_wanted: IsWanted) -> Answers:
            taken.extend(job.query.text for job in jobs if isinstance(job.query, TextQuery))
            begun.set()
            assert go_on.wait(10)
            return real(searcher, jobs, is_wanted)

        monkeypatch.setattr(worker, "answer", slow)
        first = asyncio.create_task(workers.search(search_job("first", k=1)))
        await asyncio.to_thread(begun.wait, 10)
        waiting = [
            asyncio.create_task(workers.search(search_job(name, k=1))) for name in ("b", "c")
        ]
        await asyncio.sleep(0)
        waiting[0].cancel()
        go_on.set()
        await asyncio.gather(first, waiting[1])
        assert taken == ["first", "c"]


async def test_a_dead_thread_fails_its_batch_is_reported_and_replaced(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_workers, "_RESTART_S", 0.0)
    async with running(index_folder, query_threads=1) as (workers, worker):
        real = worker.answer

        def die(_: object, jobs: list[SearchJob], __: IsWanted) -> Answers:
            assert len(jobs) == 2
            raise SystemExit

        begun = asyncio.Event()
        monkeypatch.setattr(worker, "answer", die)
        restart = asyncio.Event()

        async def wait_for_restart(_: float) -> None:
            begun.set()
            await restart.wait()

        with monkeypatch.context() as patch:
            patch.setattr(thread_workers.asyncio, "sleep", wait_for_restart)
            tasks = [
                asyncio.create_task(workers.search(search_job(name, k=1))) for name in ("a", "b")
            ]
            first, second = await asyncio.gather(*tasks, return_exceptions=True)
            await begun.wait()
        assert isinstance(first, WorkerDiedError)
        assert isinstance(second, WorkerDiedError)
        assert not workers.health().ready
        assert workers.health().alive == workers.health().wanted - 1
        monkeypatch.setattr(worker, "answer", real)
        waiting = asyncio.create_task(workers.search(search_job("c", k=1)))
        restart.set()
        assert isinstance(await waiting, Answered)
        assert workers.health().ready
    assert "thread query-0 ends" in caplog.text


async def test_a_dead_job_thread_fails_its_job_alone(
    index_folder: Path, image_ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_workers, "_RESTART_S", 0.0)
    async with running(index_folder) as (workers, _):
        with pytest.raises(WorkerDiedError):
            await workers.call(Die())
        with pytest.raises(ZeroDivisionError):
            await workers.call(Fail())
        for _ in range(10):
            await workers.call(GetItem("images", image_ids[0]))
        await until(lambda: workers.health().ready)


async def test_a_refused_photo_is_gone_with_its_refusal(index_folder: Path) -> None:
    async with running(index_folder) as (workers, _):
        gc.disable()  # what is gone has gone by itself
        try:
            photo = Photo()
            gone = weakref.ref(photo)
            job = Refuse(photo)
            del photo
            with pytest.raises(InputError, match="damaged"):
                await workers.call(job)
            del job
            await until(lambda: gone() is None)
        finally:
            gc.enable()


async def test_long_jobs_do_not_delay_queries_and_are_refused_when_too_many_wait(
    index_folder: Path,
) -> None:
    async with running(index_folder, query_threads=1, max_waiting=1) as (workers, _):
        holds = [Hold() for _ in range(4)]
        tasks: list[asyncio.Task[str]] = []
        for hold in holds:
            tasks.append(asyncio.create_task(workers.call(hold)))
            await until(hold.begun.is_set)
        tasks.append(asyncio.create_task(workers.call(Hold(go_on=holds[0].go_on))))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await workers.call(Hold())
        assert isinstance(await workers.search(search_job(k=1)), Answered)
        for hold in holds:
            hold.go_on.set()
        assert await asyncio.gather(*tasks) == ["done"] * 5


async def test_stopping_finishes_what_runs_and_the_queries_that_wait(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(index_folder, query_threads=1, max_wait_ms=60_000) as (workers, worker):
        begun, go_on = threading.Event(), threading.Event()
        real = worker.answer

        def slow(searcher: object, jobs: list[SearchJob], is_wanted: IsWanted) -> Answers:
            begun.set()
            assert go_on.wait(10)
            return real(searcher, jobs, is_wanted)

        monkeypatch.setattr(worker, "answer", slow)
        hold = Hold()
        job = asyncio.create_task(workers.call(hold))
        tasks = [asyncio.create_task(workers.search(search_job("runs", k=1)))]
        await until(lambda: begun.is_set() and hold.begun.is_set())
        tasks += [asyncio.create_task(workers.search(search_job("waits", k=1))) for _ in range(3)]
        await asyncio.sleep(0)
        ending = asyncio.create_task(workers.stop())
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDownError):
            await workers.search(search_job("too late", k=1))
        assert not ending.done()
        hold.go_on.set()
        go_on.set()
        assert all(isinstance(answer, Answered) for answer in await asyncio.gather(*tasks))
        assert await job == "done"
        await ending
        with pytest.raises(IndexNotReadyError):
            worker.live.searcher()  # closed


async def test_stopping_cancels_work_that_does_not_end(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_workers, "_STOP_S", 0.05)
    hold = Hold()
    async with running(index_folder) as (workers, _):
        job = asyncio.create_task(workers.call(hold))
        await until(hold.begun.is_set)
        await workers.stop()
        assert "shutdown timeout (0.05 s)" in caplog.text
        hold.go_on.set()
        job.cancel()


async def test_a_thread_runs_one_function_after_the_other_and_returns_errors() -> None:
    thread = WorkerThread("test")
    names = await asyncio.gather(
        *(thread.run(lambda: threading.current_thread().name) for _ in range(3))
    )
    assert names == ["test"] * 3
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert thread.is_alive
    thread.close()
