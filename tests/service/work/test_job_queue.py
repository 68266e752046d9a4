"""The line of single jobs: who is refused, who is served next, and what stays of a failed one."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import cast

import pytest

from aladin_network.errors import ImageError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.work.job_queue import JobQueue, JobQueues
from aladin_service.work.worker import Job, JobQueueName, Worker

pytestmark = pytest.mark.anyio


class Photo:
    """Stands for the bytes and the pixels of an upload."""


class Refuse(Job[None]):
    """Finds a photo damaged."""

    def __init__(self, photo: Photo) -> None:
        self.photo = photo

    def run(self, worker: Worker) -> None:  # noqa: ARG002
        pixels = self.photo  # as a decoder's frame would
        try:
            raise ZeroDivisionError(id(pixels))
        except ZeroDivisionError as error:
            raise ImageError("upload", "damaged") from error


class Nothing(Job[None]):
    """Does nothing."""

    def run(self, worker: Worker) -> None:
        pass


@pytest.fixture
def no_collections() -> Iterator[None]:
    """What is gone has gone by itself."""
    gc.disable()
    yield
    gc.enable()


async def serve(line: JobQueue, jobs: int) -> None:
    """Do so many jobs, as a worker would."""
    for _ in range(jobs):
        waiting = await line.next_job()
        try:
            waiting.settle(waiting.job.run(cast(Worker, None)))
        except Exception as error:
            waiting.fail(error)


@pytest.mark.usefixtures("no_collections")
async def test_of_a_refused_photo_nothing_stays_when_its_client_has_been_told() -> None:
    line = JobQueue(1)
    worker = asyncio.create_task(serve(line, 1))
    photo = Photo()
    gone = weakref.ref(photo)
    job = Refuse(photo)
    del photo
    with pytest.raises(ImageError, match="damaged"):
        await line.do(job)
    del job
    await worker
    await asyncio.sleep(0)  # what woke this task up refers to the error
    assert gone() is None


async def test_a_burst_is_taken_as_far_as_workers_are_free_and_some_may_wait() -> None:
    line = JobQueue(1)
    workers = [asyncio.create_task(serve(line, 2)) for _ in range(3)]
    await asyncio.sleep(0)  # each waits for a job
    burst = await asyncio.gather(*(line.do(Nothing()) for _ in range(6)), return_exceptions=True)
    assert [type(result) for result in burst] == [type(None)] * 4 + [OverloadedError] * 2
    await asyncio.gather(*(line.do(Nothing()) for _ in range(2)))
    await asyncio.gather(*workers)


async def test_without_room_to_wait_a_free_worker_is_needed() -> None:
    line = JobQueue(0)
    with pytest.raises(OverloadedError):
        await line.do(Nothing())
    worker = asyncio.create_task(serve(line, 1))
    await asyncio.sleep(0)
    assert await line.do(Nothing()) is None
    await worker


async def test_whoever_is_withdrawn_is_passed_over() -> None:
    line = JobQueue(2)
    withdrawn = asyncio.create_task(line.do(Refuse(Photo())))
    kept = asyncio.create_task(line.do(Nothing()))
    await asyncio.sleep(0)
    withdrawn.cancel()
    worker = asyncio.create_task(serve(line, 1))
    await kept
    await worker
    assert withdrawn.cancelled()


async def test_a_closed_line_fails_those_that_wait_and_takes_nobody() -> None:
    line = JobQueue(1)
    waiting = asyncio.create_task(line.do(Nothing()))
    await asyncio.sleep(0)
    line.close(WorkerDiedError())
    with pytest.raises(WorkerDiedError):
        await waiting
    with pytest.raises(ShuttingDownError):
        await line.do(Nothing())


async def test_whoever_hangs_up_gives_the_place_back_at_once() -> None:
    line = JobQueue(1)
    for _ in range(3):  # nobody serves the line
        photo = Photo()
        gone = weakref.ref(photo)
        withdrawn = asyncio.create_task(line.do(Refuse(photo)))
        del photo
        await asyncio.sleep(0)
        withdrawn.cancel()
        await asyncio.wait([withdrawn])
        assert withdrawn.cancelled()
        del withdrawn
        gc.collect()
        assert gone() is None
    kept = asyncio.create_task(line.do(Nothing()))
    await serve(line, 1)
    await kept


class Change(Nothing):
    """Belongs to the changes of an index."""

    @property
    def queue(self) -> JobQueueName:
        return "write"


async def test_a_full_queue_delays_no_other() -> None:
    queues = JobQueues({"read": 1, "write": 1})
    waiting = asyncio.create_task(queues.do(Nothing()))
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError):
        await queues.do(Nothing())
    worker = asyncio.create_task(serve(queues.queue("write"), 1))
    await queues.do(Change())
    await worker
    assert not waiting.done()
    queues.close(ShuttingDownError())
    with pytest.raises(ShuttingDownError):
        await waiting
    with pytest.raises(ShuttingDownError):
        await queues.do(Change())
