"""The bounded thread pool of the queries."""

from __future__ import annotations

import asyncio
import threading

import pytest

from aladin.errors import OverloadedError
from service.http.worker_pool import WorkerPool


def test_a_job_returns_its_value_or_raises_its_own_error() -> None:
    async def both() -> tuple[object, object]:
        with WorkerPool(workers=2, max_waiting=4) as pool:
            good, bad = await asyncio.gather(
                pool.run(divmod, 7, 2), pool.run(divmod, 7, 0), return_exceptions=True
            )
        return good, bad

    good, bad = asyncio.run(both())
    assert good == (3, 1)
    assert isinstance(bad, ZeroDivisionError)


def test_jobs_over_the_waiting_line_are_refused_and_places_come_back() -> None:
    async def fill() -> None:
        gate = threading.Event()
        with WorkerPool(workers=1, max_waiting=1) as pool:
            try:
                running = asyncio.create_task(pool.run(gate.wait))
                waiting = asyncio.create_task(pool.run(gate.wait))
                await asyncio.sleep(0)
                with pytest.raises(OverloadedError) as refusal:
                    await pool.run(gate.wait)
                assert refusal.value.retry_after_s > 0
            finally:
                gate.set()
            assert await running
            assert await waiting
            assert await pool.run(lambda: "free again") == "free again"

    asyncio.run(fill())


def test_a_client_that_leaves_does_not_free_the_place_of_its_running_job() -> None:
    async def leave() -> None:
        gate, begun = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            gate.wait()

        with WorkerPool(workers=1, max_waiting=0) as pool:
            try:
                task = asyncio.create_task(pool.run(hold))
                await asyncio.to_thread(begun.wait)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                with pytest.raises(OverloadedError):
                    await pool.run(gate.wait)
            finally:
                gate.set()

    asyncio.run(leave())


def test_the_event_loop_goes_on_while_jobs_run() -> None:
    async def tick() -> int:
        gate, ticks = threading.Event(), 0
        with WorkerPool(workers=1, max_waiting=1) as pool:
            job = asyncio.create_task(pool.run(gate.wait))
            for _ in range(5):
                await asyncio.sleep(0.001)
                ticks += 1
            gate.set()
            await job
        return ticks

    assert asyncio.run(tick()) == 5
