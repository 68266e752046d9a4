"""Queues of jobs: who is refused, who is served next, and what stays of a withdrawn job."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import cast

import pytest

from aladin_network.errors import NoWorkerError, OverloadedError, ShuttingDownError
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.queues import JobQueue
from aladin_service.work.worker import Job, JobQueueName, Worker
from aladin_service.work.workers import Queues

pytestmark = pytest.mark.anyio


class Photo:
    """Stands for the bytes and the pixels of an upload."""


class Nothing(Job[None]):
    def run(self, worker: Worker) -> None:
        pass


class Look(Nothing):
    """Refers to a photo."""

    def __init__(self, photo: Photo) -> None:
        self.photo = photo


class Change(Nothing):
    @property
    def queue(self) -> JobQueueName:
        return "write"


async def serve(queue: JobQueue, jobs: int) -> None:
    for _ in range(jobs):
        taken = await queue.next_job()
        assert taken is not None
        try:
            await taken.deliver(cast(Job[None], taken.work).run(cast(Worker, None)))
        except Exception as error:
            taken.finish(error)


@pytest.mark.parametrize(("most", "workers", "accepted"), [(0, 0, 0), (0, 1, 1), (1, 3, 4)])
async def test_as_many_jobs_are_accepted_as_workers_are_free_and_some_may_wait(
    most: int, workers: int, accepted: int
) -> None:
    queue = JobQueue("read", most)
    serving = [asyncio.create_task(serve(queue, 2)) for _ in range(workers)]
    await asyncio.sleep(0)  # each waits for a job
    jobs = (queue.answer(Nothing()) for _ in range(6))
    outcomes = [type(each) for each in await asyncio.gather(*jobs, return_exceptions=True)]
    assert outcomes == [type(None)] * accepted + [OverloadedError] * (6 - accepted)
    await asyncio.gather(*(queue.answer(Nothing()) for _ in range(2 * workers - accepted)))
    await asyncio.gather(*serving)


async def test_a_withdrawn_job_frees_its_place_and_its_photo_at_once() -> None:
    queue = JobQueue("read", 1)
    for _ in range(3):  # nobody serves the queue
        photo = Photo()
        gone = weakref.ref(photo)
        withdrawn = asyncio.create_task(queue.answer(Look(photo)))
        del photo
        await asyncio.sleep(0)
        withdrawn.cancel()
        await asyncio.wait([withdrawn])
        assert withdrawn.cancelled()
        del withdrawn
        gc.collect()
        assert gone() is None
    kept = asyncio.create_task(queue.answer(Nothing()))
    await serve(queue, 1)
    await kept


async def test_a_job_withdrawn_in_the_same_turn_is_passed_over() -> None:
    queue = JobQueue("read", 2)
    withdrawn = asyncio.create_task(queue.answer(Look(Photo())))
    kept = asyncio.create_task(queue.answer(Nothing()))
    await asyncio.sleep(0)
    withdrawn.cancel()
    await serve(queue, 1)
    await kept


async def test_a_full_or_closed_queue_or_a_missing_worker_refuses_what_comes_and_what_waits() -> (
    None
):
    queues = Queues(ServiceSettings(max_waiting=1), Metrics())
    waiting = asyncio.create_task(queues.call(Nothing()))
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError):
        await queues.call(Nothing())
    worker = asyncio.create_task(serve(queues.jobs["write"], 1))
    await queues.call(Change())  # another queue has its own room
    await worker
    assert not waiting.done()
    queues.set_worker_missing(True)
    for refused in (waiting, queues.call(Nothing())):
        with pytest.raises(NoWorkerError):
            await refused
    queues.set_worker_missing(False)
    again = asyncio.create_task(queues.call(Nothing()))
    await serve(queues.jobs["read"], 1)
    await again
    waiting = asyncio.create_task(queues.call(Nothing()))
    idle = asyncio.create_task(queues.jobs["write"].next_job())
    await asyncio.sleep(0)
    queues.close()
    assert await idle is None
    for refused in (waiting, queues.call(Nothing()), queues.call(Change())):
        with pytest.raises(ShuttingDownError):
            await refused


def test_each_thread_of_a_worker_has_a_queue_and_slow_jobs_have_shorter_ones() -> None:
    queues = Queues(ServiceSettings(query_threads=2, max_waiting=1000), Metrics())
    assert [name.partition("-")[0] for name in queues.takes()] == (
        ["query"] * 2 + ["read"] * 4 + ["picture"] * 2 + ["original"] * 2 + ["write"] * 2
    )
    most = {name: queue._most for name, queue in queues.jobs.items()}
    assert most == {"read": 1000, "picture": 64, "original": 16, "write": 1000}
