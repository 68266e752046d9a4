"""What threads and processes have in common as workers; and what is special to threads."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import aladin_service.work.workers as thread_module
from aladin_index.format.layout import CURRENT
from aladin_index.generations.compact import compact_index
from aladin_network.errors import (
    ImageError,
    IndexNotReadyError,
    OverloadedError,
    ShuttingDownError,
    TextTooLongError,
    UnknownItemError,
    WorkerDiedError,
)
from aladin_service.search.job import Answered, SearchJob, TextQuery, WorkAnswer
from aladin_service.work.jobs import GetItem
from aladin_service.work.messages import UnforeseenError
from aladin_service.work.worker import IsWanted, Job, Worker
from aladin_service.work.workers import ThreadWorkers, WorkerThread
from tests.service.searching import search_job
from tests.service.work.running import Fail, Hold, added, ids, plan_of, running, until

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["thread_workers", "process_workers"])
def workers(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


async def test_queries_and_jobs_get_their_own_answers_and_errors(workers: Any) -> None:
    texts = ["a dog", "dog " * 100, *(f"a {number} dog" for number in range(10))]
    answers = await asyncio.gather(
        *(workers.search(search_job(text)) for text in texts), return_exceptions=True
    )
    assert isinstance(answers.pop(1), TextTooLongError)
    assert [len(ids(answer)) for answer in answers] == [6] * 11
    assert (await workers.call(GetItem("images", "plain"))).id == "plain"
    with pytest.raises(UnknownItemError, match="'nobody'"):
        await workers.call(GetItem("images", "nobody"))
    with pytest.raises((ZeroDivisionError, UnforeseenError)):
        await workers.call(Fail())
    health = workers.health()
    assert (health.ready, health.alive, health.generation) == (True, health.wanted, 1)


async def test_long_jobs_do_not_delay_queries_and_are_refused_when_too_many_wait(
    workers: Any, tmp_path: Path
) -> None:
    threads = 4 if isinstance(workers, ThreadWorkers) else 8
    holds = [Hold(tmp_path, str(number)) for number in range(threads + 12)]
    jobs = [asyncio.create_task(workers.call(hold)) for hold in holds]
    try:
        await until(lambda: len(list(tmp_path.glob("* begun"))) == threads)
        with pytest.raises(OverloadedError):
            await workers.call(Hold(tmp_path))
        assert len(ids(await workers.search(search_job()))) == 6
        jobs.pop().cancel()
        await asyncio.sleep(0)
        jobs.append(asyncio.create_task(workers.call(Hold(tmp_path, "in the place"))))
        await asyncio.sleep(0)
    finally:
        (tmp_path / "go on").touch()
    assert await asyncio.gather(*jobs) == ["done"] * len(holds)
    assert not (tmp_path / f"{len(holds) - 1} begun").exists()


async def test_a_job_that_has_begun_hears_that_nobody_waits_for_it(
    workers: Any, tmp_path: Path
) -> None:
    job = asyncio.create_task(workers.call(Hold(tmp_path)))
    await until((tmp_path / "hold begun").exists)
    job.cancel()
    await until((tmp_path / "hold withdrawn").exists)
    assert len(ids(await workers.search(search_job()))) == 6


async def test_a_job_that_ends_its_worker_fails_alone(workers: Any) -> None:
    with pytest.raises(WorkerDiedError):
        await workers.call(Fail(SystemExit))
    assert not workers.health().ready
    assert workers.health().alive == workers.health().wanted - 1
    assert len(ids(await workers.search(search_job()))) == 6
    await until(lambda: workers.health().ready)


@pytest.mark.parametrize("kind", ["threads", "processes"])
async def test_what_is_added_or_published_is_found_by_the_next_search_until_all_is_stopped(
    kind: Any, index: Path
) -> None:
    async with running(plan_of(index), kind) as workers:
        texts = [search_job(target="texts", k=100) for _ in range(5)]
        for name in ("first", "second", "third"):
            await workers.call(added(name))
            found = await asyncio.gather(*map(workers.search, texts))
            assert all(name in ids(answer) for answer in found)
        await asyncio.to_thread(compact_index, index, keep=0)
        found = await asyncio.gather(*map(workers.search, texts))
        assert {answer.generation for answer in found} == {2}
        if kind == "processes":  # one that has nothing to do follows as well
            await until(lambda: _is_dropped(index, 1))
        # What cannot be opened is refused.
        (index / CURRENT).unlink()
        (index / CURRENT).write_text("no number\n")
        with suppress(OSError):
            await workers.search(texts[0])
        await until(lambda: workers.health().refused is not None)
        health = workers.health()
        assert (health.ready, health.generation) == (True, 2)
        assert "no number" in (health.refused or "")
        assert (await workers.search(texts[0])).generation == 2
        if kind == "processes":
            # One that is started now cannot open what is live: it begins with what the other has.
            os.kill(next(iter(health.pids.values())), signal.SIGKILL)
            await until(lambda: not workers.health().ready)
            await until(lambda: workers.health().ready)
            found = await asyncio.gather(*map(workers.search, texts))
            assert {answer.generation for answer in found} == {2}
        await workers.stop()
        for refused in (workers.search(texts[0]), workers.call(added("late"))):
            with pytest.raises(ShuttingDownError):
                await refused


def _is_dropped(index: Path, number: int) -> bool:
    """Compact again; whether nobody has a generation open any more."""
    compact_index(index, keep=0)
    return not (index / "generations" / f"{number:06}").exists()


# Threads only from here.

Answers = list[WorkAnswer | Exception | None]


async def test_without_an_index_queries_fail_and_the_workers_are_not_ready(tmp_path: Path) -> None:
    async with running(plan_of(tmp_path / "nothing"), "threads") as workers:
        with pytest.raises(IndexNotReadyError):
            await workers.search(search_job())
        assert not workers.health().ready


class Slow:
    """A worker's `answer` that waits, notes what it takes, and may end its thread instead."""

    def __init__(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.taken: list[str] = []
        self.dies = False
        self._answer: Callable[..., Answers] = worker.answer
        monkeypatch.setattr(worker, "answer", self.answer)

    def answer(self, searcher: object, jobs: list[SearchJob], is_wanted: IsWanted) -> Answers:
        self.taken += [job.query.text for job in jobs if isinstance(job.query, TextQuery)]
        if self.dies:
            raise SystemExit
        self.begun.set()
        assert self.go_on.wait(10)
        return self._answer(searcher, jobs, is_wanted)


async def test_a_dead_thread_fails_its_batch_is_reported_and_replaced(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = plan_of(index_folder, query_threads=1)
    async with running(plan, "threads") as workers:
        slow = Slow(workers._worker, monkeypatch)
        slow.dies = True
        failed = await asyncio.gather(
            *(workers.search(search_job(name)) for name in "ab"), return_exceptions=True
        )
        assert [type(each) for each in failed] == [WorkerDiedError] * 2
        assert slow.taken == ["a", "b"]
        assert not workers.health().ready
        slow.dies = False
        slow.go_on.set()
        assert isinstance(await workers.search(search_job("c")), Answered)
        assert workers.health().ready
    assert "thread query-0 ends" in caplog.text


async def test_stopping_finishes_what_runs_and_the_queries_that_wait(
    index_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(index_folder, query_threads=1, max_wait_ms=60_000)
    async with running(plan, "threads") as workers:
        slow = Slow(workers._worker, monkeypatch)
        job = asyncio.create_task(workers.call(Hold(tmp_path)))
        tasks = [asyncio.create_task(workers.search(search_job("runs")))]
        await until(lambda: slow.begun.is_set() and (tmp_path / "hold begun").exists())
        tasks += [asyncio.create_task(workers.search(search_job(name))) for name in "abc"]
        await asyncio.sleep(0)
        tasks.pop(1).cancel()
        ending = asyncio.create_task(workers.stop())
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDownError):
            await workers.search(search_job("too late"))
        assert not ending.done()
        (tmp_path / "go on").touch()
        slow.go_on.set()
        assert all(isinstance(answer, Answered) for answer in await asyncio.gather(*tasks))
        assert await job == "done"
        assert slow.taken == ["runs", "b", "c"]
        await ending
        with pytest.raises(IndexNotReadyError):
            workers._worker.live.searcher()  # closed


async def test_stopping_cancels_work_that_does_not_end(
    index_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(thread_module, "_STOP_S", 0.05)
    async with running(plan_of(index_folder), "threads") as workers:
        job = asyncio.create_task(workers.call(Hold(tmp_path)))
        await until((tmp_path / "hold begun").exists)
        await workers.stop()
        assert "shutdown timeout (0.05 s)" in caplog.text
        (tmp_path / "go on").touch()
        job.cancel()


class Photo:
    """Stands for an upload."""


@dataclass(frozen=True)
class Refuse(Job[None]):
    """Finds a photo damaged."""

    photo: Photo

    def run(self, worker: Worker) -> None:  # noqa: ARG002
        pixels = self.photo  # as a decoder's frame would
        try:
            raise ZeroDivisionError(id(pixels))
        except ZeroDivisionError as error:
            raise ImageError("upload", "damaged") from error


async def test_a_refused_photo_is_gone_with_its_refusal(thread_workers: ThreadWorkers) -> None:
    gc.disable()  # what is gone has gone by itself
    try:
        photo = Photo()
        gone, job = weakref.ref(photo), Refuse(photo)
        del photo
        with pytest.raises(ImageError, match="damaged"):
            await thread_workers.call(job)
        del job
        await until(lambda: gone() is None)
    finally:
        gc.enable()


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
