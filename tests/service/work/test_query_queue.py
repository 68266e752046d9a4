"""Queues of queries: which form a batch, which come first, which are refused, and which leave."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Task
from collections.abc import Callable
from typing import Any

import pytest

from aladin_index.search.results import TookMs
from aladin_network.errors import AladinError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, ItemQuery, PhotoQuery, Query, TextQuery
from aladin_service.settings import ServiceSettings
from aladin_service.work.admission import Batch, BatchTimes, QueryQueue
from tests.service.searching import search_job
from tests.service.work.published import Clock

pytestmark = pytest.mark.anyio

Make = Callable[..., "Bench"]
PHOTO, ITEM = PhotoQuery(b"p"), ItemQuery("i")


def answer_of(name: str, *, cached: bool = False) -> Answered:
    took_ms = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
    return Answered(name.encode(), 1, (), took_ms, cached=cached)


class Bench:
    """A queue of queries, and the time that passes for it."""

    def __init__(self, clock: Clock, **settings: Any) -> None:
        self.metrics = Metrics()
        self.queue = QueryQueue(ServiceSettings(**settings), self.metrics)
        self.clock = clock

    async def ask(self, *queries: Query | str) -> list[Task[Answered]]:
        tasks = [asyncio.create_task(self.queue.answer(search_job(query))) for query in queries]
        for task in tasks:  # not all tests look at each answer
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await turn()
        return tasks

    async def take(self) -> Batch:
        batch = await self.queue.next_batch()
        assert batch is not None
        return batch

    def finish(self, batch: Batch, seconds: float = 0.0, *, cached: bool = False) -> list[str]:
        """Answer each query by its place; return the texts of the batch."""
        self.clock.now_s += seconds
        for place in range(len(batch.work)):
            batch.settle(place, answer_of(str(place), cached=cached))
        batch.finish()
        return [job.query.text for job in batch.work if isinstance(job.query, TextQuery)]

    async def work(self, seconds: float = 0.0, *, cached: bool = False) -> list[str]:
        """Take a batch, and finish it later."""
        return self.finish(await self.take(), seconds, cached=cached)

    async def learn(self, size: int, seconds: float) -> None:
        """Have a batch of texts take some time."""
        await self.ask(*map(str, range(size)))
        assert len(await self.work(seconds)) == size

    async def admitted(self) -> tuple[int, float]:
        """Send texts until one is refused; return how many were not, and when to ask again."""
        for number in range(200):
            (task,) = await self.ask("one more")
            if task.done():
                error = task.exception()
                assert isinstance(error, OverloadedError)
                return number, error.retry_after_s
        raise AssertionError("none was refused")

    async def clear(self) -> None:
        self.queue.fail_waiting(WorkerDiedError())
        await turn()


@pytest.fixture
def bench(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr("aladin_service.work.queues.time.monotonic", clock.monotonic)
    return lambda **settings: Bench(clock, **settings)


async def settled(tasks: list[Task[Answered]]) -> list[bytes | type[BaseException]]:
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [result.body if isinstance(result, Answered) else type(result) for result in results]


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_waiting_queries_form_batches_and_a_free_slot_takes_one_at_once(bench: Make) -> None:
    one = bench(max_batch=3)
    tasks = await one.ask("a", "b", "c", "d")
    assert [await one.work(), await one.work()] == [["a", "b", "c"], ["d"]]
    assert await settled(tasks) == [b"0", b"1", b"2", b"0"]
    slot = asyncio.create_task(one.take())
    await turn()
    tasks = await one.ask("e")
    async with asyncio.timeout(5):
        assert one.finish(await slot) == ["e"]
    assert await settled(tasks) == [b"0"]


async def test_the_queue_whose_first_has_waited_longest_is_next(bench: Make) -> None:
    one = bench(max_batch=2, max_wait_ms=1e6)
    for query in ("a", PHOTO, ITEM, "b"):
        await one.ask(query)
        one.clock.now_s += 1
    batches = [await one.take() for _ in range(3)]
    assert [batch.queue for batch in batches] == ["text", "photo", "encoded"]
    assert list(map(one.finish, batches)) == [["a", "b"], [], []]
    # A queue that is always busy does not delay another for ever.
    await one.ask("c", "d", "e", "f")
    one.clock.now_s += 1
    await one.ask(PHOTO)
    names: list[str] = []
    for number in range(4):
        one.clock.now_s += 1
        await one.ask(f"late {number}")
        batch = await one.take()
        names.append(batch.queue)
        one.finish(batch)
    assert names == ["text", "text", "photo", "text"]
    await one.clear()


async def test_a_cancelled_query_leaves_its_queue_or_is_not_wanted_in_its_batch(
    bench: Make,
) -> None:
    one = bench(max_waiting=2)
    tasks = await one.ask("a", "b")
    tasks[0].cancel()
    await turn()
    assert one.queue.waiting == 1
    tasks += await one.ask("c", "d")  # one has the place that came free
    batch = await one.take()
    tasks[1].cancel()
    await turn()
    assert [batch.is_wanted(place) for place in (0, 1)] == [False, True]
    one.finish(batch)  # a worker that had begun with it answers all the same
    assert await settled(tasks) == [CancelledError, CancelledError, b"1", OverloadedError]


async def test_a_slot_that_is_cancelled_loses_no_query(bench: Make) -> None:
    one = bench()
    first = asyncio.create_task(one.take())
    await turn()
    second = asyncio.create_task(one.take())
    await turn()
    task = asyncio.create_task(one.queue.answer(search_job("a")))
    await asyncio.sleep(0)  # the query has joined, and called the first slot
    first.cancel()
    async with asyncio.timeout(5):
        assert one.finish(await second) == ["a"]
    assert await settled([task]) == [b"0"]
    assert first.cancelled()


async def test_errors_and_dead_workers_fail_only_what_has_no_answer(bench: Make) -> None:
    one = bench(max_batch=3)
    tasks = await one.ask("a", "b", "c", "d")
    batch = await one.take()
    error = AladinError("of b")
    error.__cause__ = ZeroDivisionError()  # whose frames may refer to a photo
    batch.settle(1, error)
    assert error.__cause__ is None
    batch.settle(0, answer_of("in time"))
    batch.finish(WorkerDiedError())
    await one.work()
    assert await settled(tasks) == [b"in time", AladinError, WorkerDiedError, b"0"]


async def test_queries_for_free_slots_do_not_count_as_waiting(bench: Make) -> None:
    one = bench(max_waiting=0)
    slots = [asyncio.create_task(one.take()) for _ in range(2)]
    await turn()
    tasks = await one.ask("a", ITEM, "c")
    for slot in slots:
        one.finish(await slot)
    assert await settled(tasks) == [b"0", b"0", OverloadedError]


async def test_a_closed_queue_refuses_queries_and_gives_out_those_that_wait(bench: Make) -> None:
    one, idle = bench(), bench()
    slot = asyncio.create_task(idle.queue.next_batch())
    tasks = await one.ask("a")
    one.queue.close()
    idle.queue.close()
    with pytest.raises(ShuttingDownError):
        await one.queue.answer(search_job("b"))
    await one.work()
    assert await settled(tasks) == [b"0"]
    assert (await one.queue.next_batch(), await slot) == (None, None)


# Whatever the network's speed.
@pytest.mark.parametrize("lone_s", [0.010, 1.0])
async def test_so_many_are_let_in_as_are_answered_within_seven_times_a_lone_query_s_time(
    bench: Make, lone_s: float
) -> None:
    one = bench(max_batch=1, max_waiting=64)
    await one.learn(1, lone_s)
    for _ in range(3):
        await one.ask("running")
        running = await one.take()
        one.clock.now_s += lone_s / 2
        # Half a query's time is left of the running one; the sixth is done after 6.5 times.
        assert await one.admitted() == (6, pytest.approx(7 * lone_s))
        one.finish(running, lone_s / 2)
        for _ in range(6):
            await one.work(lone_s)


async def learn_line(one: Bench) -> BatchTimes:
    """Have batches take 10 ms and 5 ms for each text; return what is to be learnt from that."""
    times = BatchTimes()
    for size in (1, 2, 4, 8) * 8:
        seconds = 0.010 + 0.005 * size
        await one.learn(size, seconds)
        times.observe(size, seconds, alone=size == 1, cached=False)
    assert times.lone_s == pytest.approx(0.015)
    return times


async def test_batches_and_the_number_that_waits_follow_from_what_batches_cost(bench: Make) -> None:
    one = bench(max_batch=16, max_waiting=64)
    times = await learn_line(one)
    await one.ask("running")
    running = await one.take()
    number, retry_after_s = await one.admitted()
    # An answer may take 105 ms: those of a batch of 70 are in time if they wait for half of that.
    assert retry_after_s == pytest.approx(0.105)
    most = times.largest(0.070, 16)
    assert 10 <= most <= 12
    # A batch of them follows the running query, and one that still ends in time follows that.
    starts_s = times.expect(1) + times.expect(most)
    last = number - most
    assert starts_s + times.expect(last) <= 0.105 < starts_s + times.expect(last + 1)
    one.finish(running, 0.015)
    assert len(await one.work()) == most
    assert one.queue.waiting == last
    await one.clear()

    # No query joins a batch that would then be late.
    one = bench(max_batch=16, max_waiting=64)
    times = await learn_line(one)
    await one.ask(*map(str, range(8)))
    running = await one.take()
    one.clock.now_s += 0.001
    number, _ = await one.admitted()
    starts_s = times.expect(8) - 0.001
    assert starts_s + times.expect(number) <= 0.105 < starts_s + times.expect(number + 1)
    one.finish(running)
    await one.work()


async def test_a_single_slow_batch_turns_few_away_and_is_forgotten(bench: Make) -> None:
    one = bench(max_batch=8, max_waiting=120)

    async def room() -> int:
        number, _ = await one.admitted()
        await one.clear()
        return number

    for size in (1, 2, 4, *[8] * 30):
        await one.learn(size, 0.010 if size == 1 else 0.020)
    before = await room()
    await one.learn(8, 60.0)  # a new generation was opened meanwhile
    assert before / 4 < await room() < before
    for _ in range(30):
        await one.learn(8, 0.020)
    assert await room() == before


async def test_a_few_are_admitted_however_long_the_latest_batches_took(bench: Make) -> None:
    one = bench(max_batch=1, max_waiting=120)
    await one.learn(1, 0.100)
    assert (await one.admitted())[0] == 7
    for _ in range(7):
        await one.work(0.200)  # the last one is alone: 120 ms
    for _ in range(20):
        await one.ask("a", "b")
        await one.work(2.0)  # a database that does not answer, for example
        await one.work(2.0)
    assert (await one.admitted())[0] == 7
    await one.clear()


async def test_cached_queries_do_not_lower_the_expected_time(bench: Make) -> None:
    one = bench(max_batch=1, max_waiting=64)
    await one.learn(1, 0.100)
    for _ in range(50):
        await one.ask("a")
        await one.work(0.001, cached=True)
    assert await one.admitted() == (64, pytest.approx(0.7))
    await one.clear()


async def test_a_text_may_wait_for_photos_as_long_as_a_photo_may(bench: Make) -> None:
    one = bench(max_batch=1, max_waiting=64)
    await one.learn(1, 0.010)
    for _ in range(20):
        tasks = await one.ask(PHOTO)
        running = await one.take()
        tasks += await one.ask("a")  # in 210 ms, which is more than seven times 10
        one.finish(running, 0.200)
        tasks += await one.ask(PHOTO)
        await one.work(0.010)
        await one.work(0.200)
        assert await settled(tasks) == [b"0"] * 3
    await one.ask(PHOTO)
    running = await one.take()
    assert await one.admitted() == (64, pytest.approx(1.4))
    one.finish(running)
    await one.clear()


async def test_a_bound_in_milliseconds_stands_for_the_learned_one(bench: Make) -> None:
    one = bench(max_batch=1, max_waiting=64, max_wait_ms=5000)
    for seconds in [0.010] + [0.090] * 50:
        await one.learn(1, seconds)
    assert await one.admitted() == (55, 5)  # the last after 4.95 s
    await one.clear()


async def test_metrics_count_waiting_queries_and_the_sizes_of_batches(bench: Make) -> None:
    one = bench()
    await one.ask("a", "b", "c", ITEM)
    shown = [one.metrics.render().decode()]
    for _ in range(2):
        await one.work()
        shown.append(one.metrics.render().decode())
    assert 'aladin_queue_depth{lane="text"} 3.0' in shown[0]
    assert 'aladin_queue_depth{lane="encoded"} 1.0' in shown[0]
    assert 'aladin_queue_depth{lane="text"} 0.0' in shown[1]
    assert 'aladin_batch_size_sum{lane="text"} 3.0' in shown[1]
