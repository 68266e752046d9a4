"""Queues of queries: which form a batch, which come first, which are refused, and which leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aladin_index.search.results import TookMs
from aladin_network.errors import AladinError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import (
    Answered,
    ItemQuery,
    PhotoQuery,
    Query,
    TextQuery,
)
from aladin_service.settings import ServiceSettings
from aladin_service.work.batch_times import BatchTimes
from aladin_service.work.queues import Batch, QueryQueue
from tests.service.searching import search_job
from tests.service.work.published import Clock

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time of the queue."""
    monkeypatch.setattr("aladin_service.work.queues.time.monotonic", clock.monotonic)
    return clock


def new_queue(**settings: Any) -> QueryQueue:
    return QueryQueue(ServiceSettings(**settings), Metrics())


def ask(queue: QueryQueue, *queries: Query) -> list[asyncio.Task[Answered]]:
    """Queue queries in their order; not all tests look at each answer."""
    tasks = [asyncio.create_task(queue.answer(search_job(query))) for query in queries]
    for task in tasks:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return tasks


def texts(*names: str) -> list[TextQuery]:
    return [TextQuery(name) for name in names]


def named(batch: Batch | None) -> list[str]:
    """Return the texts of a batch."""
    assert batch is not None
    return [job.query.text for job in batch.work if isinstance(job.query, TextQuery)]


def answer_of(name: str, *, cached: bool = False) -> Answered:
    took_ms = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
    return Answered(name.encode(), 1, (), took_ms, cached=cached)


def answer_all(batch: Batch | None, *, cached: bool = False) -> None:
    assert batch is not None
    for place in range(len(batch.work)):
        batch.settle(place, answer_of(str(place), cached=cached))
    batch.finish()


async def settled(tasks: list[asyncio.Task[Answered]]) -> list[bytes | type[BaseException]]:
    """Return each answer's body, or the class of its error."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [result.body if isinstance(result, Answered) else type(result) for result in results]


async def turn() -> None:
    """Let everything that can go on now go on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_waiting_queries_of_a_kind_form_batches_and_each_gets_its_own_answer() -> None:
    queue = new_queue(max_batch=3)
    tasks = ask(queue, *texts("a", "b", "c", "d"))
    await turn()
    first = await queue.next_batch()
    assert named(first) == ["a", "b", "c"]
    answer_all(first)
    second = await queue.next_batch()
    assert named(second) == ["d"]
    answer_all(second)
    assert await settled(tasks) == [b"0", b"1", b"2", b"0"]


async def test_a_free_slot_takes_a_query_at_once() -> None:
    queue = new_queue()
    slot = asyncio.create_task(queue.next_batch())
    await turn()
    tasks = ask(queue, TextQuery("a"))
    async with asyncio.timeout(5):
        batch = await slot
    assert named(batch) == ["a"]
    answer_all(batch)
    assert await settled(tasks) == [b"0"]


async def test_the_queue_whose_first_has_waited_longest_is_next(clock: Clock) -> None:
    queue = new_queue(max_wait_ms=1e6)
    tasks: list[asyncio.Task[Answered]] = []
    for query in (TextQuery("a"), PhotoQuery(b"p"), ItemQuery("i"), TextQuery("b")):
        tasks += ask(queue, query)
        await turn()
        clock.now_s += 0.001
    names: list[str] = []
    for _ in range(3):
        batch = await queue.next_batch()
        assert batch is not None
        names.append(batch.queue)
        answer_all(batch)
    assert names == ["text", "photo", "encoded"]  # b went with a
    await settled(tasks)


async def test_a_busy_queue_does_not_delay_another_for_ever(clock: Clock) -> None:
    queue = new_queue(max_batch=2, max_wait_ms=1e6)
    tasks = ask(queue, *texts("a", "b", "c", "d"))
    await turn()
    clock.now_s += 1
    tasks += ask(queue, PhotoQuery(b"p"))
    await turn()
    names: list[str] = []
    for number in range(4):
        clock.now_s += 1
        tasks += ask(queue, TextQuery(f"late {number}"))
        await turn()
        batch = await queue.next_batch()
        assert batch is not None
        names.append(batch.queue)
        answer_all(batch)
    assert names == ["text", "text", "photo", "text"]
    queue.fail_waiting(WorkerDiedError())
    await settled(tasks)


async def test_a_cancelled_query_leaves_its_queue_at_once() -> None:
    queue = new_queue(max_waiting=2)
    tasks = ask(queue, *texts("a", "b"))
    await turn()
    tasks[0].cancel()
    await turn()
    assert queue.waiting == 1
    tasks += ask(queue, TextQuery("c"))  # has the place that came free
    await turn()
    batch = await queue.next_batch()
    assert named(batch) == ["b", "c"]
    answer_all(batch)
    assert await settled(tasks) == [asyncio.CancelledError, b"0", b"1"]


async def test_a_query_cancelled_in_its_batch_is_not_wanted_and_the_others_are_answered() -> None:
    queue = new_queue()
    tasks = ask(queue, *texts("a", "b"))
    await turn()
    batch = await queue.next_batch()
    assert batch is not None
    tasks[0].cancel()
    await turn()
    assert [batch.is_wanted(place) for place in (0, 1)] == [False, True]
    answer_all(batch)  # a worker that had begun with it answers all the same
    assert await settled(tasks) == [asyncio.CancelledError, b"1"]


async def test_an_error_is_its_own_query_s_alone() -> None:
    queue = new_queue()
    tasks = ask(queue, *texts("a", "b", "c"))
    await turn()
    batch = await queue.next_batch()
    assert batch is not None
    error = AladinError("of b")
    error.__cause__ = ZeroDivisionError()  # whose frames may refer to a photo
    batch.settle(1, error)
    assert error.__cause__ is None
    batch.settle(0, answer_of("of a"))
    batch.settle(2, answer_of("of c"))
    batch.finish()
    assert await settled(tasks) == [b"of a", AladinError, b"of c"]


async def test_a_dead_worker_fails_those_without_an_answer_and_nobody_who_waits() -> None:
    queue = new_queue(max_batch=2)
    tasks = ask(queue, *texts("a", "b", "c"))
    await turn()
    batch = await queue.next_batch()
    assert batch is not None
    batch.settle(0, answer_of("in time"))
    batch.finish(WorkerDiedError())
    answer_all(await queue.next_batch())
    assert await settled(tasks) == [b"in time", WorkerDiedError, b"0"]


async def test_queries_beyond_the_limit_are_refused_at_once() -> None:
    queue = new_queue(max_waiting=2)
    tasks = ask(queue, *texts("a", "b", "c"))
    await turn()
    assert [task.done() for task in tasks] == [False, False, True]
    answer_all(await queue.next_batch())
    assert await settled(tasks) == [b"0", b"1", OverloadedError]


async def test_queries_for_free_slots_do_not_count_as_waiting() -> None:
    queue = new_queue(max_waiting=0)
    slots = [asyncio.create_task(queue.next_batch()) for _ in range(2)]
    await turn()
    tasks = ask(queue, TextQuery("a"), ItemQuery("b"), TextQuery("c"))
    await turn()
    for slot in slots:
        answer_all(await slot)
    assert await settled(tasks) == [b"0", b"0", OverloadedError]


async def learn(queue: QueryQueue, clock: Clock, size: int, seconds: float) -> None:
    """Have a batch of texts take some time."""
    tasks = ask(queue, *texts(*map(str, range(size))))
    await turn()
    assert queue.waiting == size
    batch = await queue.next_batch()
    clock.now_s += seconds
    answer_all(batch)
    assert not queue.waiting
    assert await settled(tasks) == [str(place).encode() for place in range(size)]


async def admitted(queue: QueryQueue, most: int) -> tuple[int, OverloadedError]:
    """Send texts until one is refused; return how many were not, and the refusal."""
    for number in range(most):
        (task,) = ask(queue, TextQuery("one more"))
        await turn()
        if task.done():
            error = task.exception()
            assert isinstance(error, OverloadedError)
            return number, error
    raise AssertionError("none was refused")


async def run_at_once(queue: QueryQueue, clock: Clock, count: int, seconds: float) -> None:
    """Have texts come together and be answered one by one, some time each."""
    tasks = ask(queue, *texts(*map(str, range(count))))
    await turn()
    while queue.waiting:
        batch = await queue.next_batch()
        clock.now_s += seconds
        answer_all(batch)
    await settled(tasks)


# Whatever the network's speed.
@pytest.mark.parametrize("lone_s", [0.010, 1.0])
async def test_so_many_are_let_in_as_are_answered_within_seven_times_a_lone_query_s_time(
    clock: Clock, lone_s: float
) -> None:
    queue = new_queue(max_batch=1, max_waiting=64)
    await learn(queue, clock, 1, lone_s)
    for _ in range(5):
        tasks = ask(queue, TextQuery("running"))
        await turn()
        running = await queue.next_batch()
        clock.now_s += lone_s / 2
        number, error = await admitted(queue, 100)
        assert error.retry_after_s == pytest.approx(7 * lone_s)
        # Half a query's time is left of the running one; the sixth is done after 6.5 times.
        assert number == 6
        clock.now_s += lone_s / 2
        answer_all(running)
        await settled(tasks)
        for _ in range(number):
            batch = await queue.next_batch()
            clock.now_s += lone_s
            answer_all(batch)


async def learn_line(queue: QueryQueue, clock: Clock) -> BatchTimes:
    """Have batches take 10 ms and 5 ms for each text; return what is to be learnt from that."""
    times = BatchTimes()
    for size in (1, 2, 4, 8) * 8:
        seconds = 0.010 + 0.005 * size
        await learn(queue, clock, size, seconds)
        times.observe(size, seconds, alone=size == 1, cached=False)
    assert times.lone_s == pytest.approx(0.015)
    return times


async def test_batches_and_the_number_that_waits_follow_from_what_batches_cost(
    clock: Clock,
) -> None:
    queue = new_queue(max_batch=16, max_waiting=64)
    times = await learn_line(queue, clock)
    tasks = ask(queue, TextQuery("running"))
    await turn()
    running = await queue.next_batch()
    number, error = await admitted(queue, 100)
    # An answer may take 105 ms: those of a batch of 70 are in time if they wait for half of that.
    assert error.retry_after_s == pytest.approx(0.105)
    most = times.largest(0.070, 16)
    assert 10 <= most <= 12
    # A batch of them follows the running query, and one that still ends in time follows that.
    starts_s = times.expect(1) + times.expect(most)
    last = number - most
    assert starts_s + times.expect(last) <= 0.105 < starts_s + times.expect(last + 1)
    assert 1 <= last <= 3
    clock.now_s += 0.015
    answer_all(running)
    await settled(tasks)
    batch = await queue.next_batch()
    assert len(named(batch)) == most
    answer_all(batch)
    assert queue.waiting == last
    queue.fail_waiting(WorkerDiedError())


async def test_no_query_joins_a_batch_that_would_then_be_late(clock: Clock) -> None:
    queue = new_queue(max_batch=16, max_waiting=64)
    times = await learn_line(queue, clock)
    tasks = ask(queue, *texts(*map(str, range(8))))
    await turn()
    running = await queue.next_batch()
    clock.now_s += 0.001
    number, _ = await admitted(queue, 100)
    starts_s = times.expect(8) - 0.001
    assert starts_s + times.expect(number) <= 0.105 < starts_s + times.expect(number + 1)
    assert 7 <= number <= 9
    answer_all(running)
    answer_all(await queue.next_batch())
    await settled(tasks)


async def test_a_single_slow_batch_turns_few_away_and_is_forgotten(clock: Clock) -> None:
    queue = new_queue(max_batch=8, max_waiting=120)

    async def room() -> int:
        number, _ = await admitted(queue, 200)
        queue.fail_waiting(WorkerDiedError())
        await turn()
        return number

    for size in (1, 2, 4, *[8] * 30):
        await learn(queue, clock, size, 0.010 if size == 1 else 0.020)
    before = await room()
    await learn(queue, clock, 8, 60.0)  # a new generation was opened meanwhile
    assert before / 4 < await room() < before
    for _ in range(30):
        await learn(queue, clock, 8, 0.020)
    assert await room() == before


async def test_a_few_are_admitted_however_long_the_latest_batches_took(clock: Clock) -> None:
    queue = new_queue(max_batch=1, max_waiting=120)
    await learn(queue, clock, 1, 0.100)
    assert (await admitted(queue, 200))[0] == 7
    for left in range(7, 0, -1):
        batch = await queue.next_batch()
        clock.now_s += 0.200
        assert queue.waiting == left - 1
        answer_all(batch)  # the last one is alone: 120 ms
    for _ in range(20):
        await run_at_once(queue, clock, 2, 2.0)  # a database that does not answer, for example
    assert (await admitted(queue, 200))[0] == 7
    queue.fail_waiting(WorkerDiedError())


async def test_cached_queries_do_not_lower_the_expected_time(clock: Clock) -> None:
    queue = new_queue(max_batch=1, max_waiting=64)
    await learn(queue, clock, 1, 0.100)
    for _ in range(50):
        tasks = ask(queue, TextQuery("a"))
        await turn()
        batch = await queue.next_batch()
        clock.now_s += 0.001
        answer_all(batch, cached=True)
        await settled(tasks)
    number, error = await admitted(queue, 100)
    assert number == 64
    assert error.retry_after_s == pytest.approx(0.7)
    queue.fail_waiting(WorkerDiedError())


async def test_a_text_may_wait_for_photos_as_long_as_a_photo_may(clock: Clock) -> None:
    queue = new_queue(max_batch=1, max_waiting=64)
    await learn(queue, clock, 1, 0.010)
    for _ in range(20):
        (photo,) = ask(queue, PhotoQuery(b"p"))
        await turn()
        running = await queue.next_batch()
        (text,) = ask(queue, TextQuery("a"))  # in 210 ms, which is more than seven times 10
        await turn()
        clock.now_s += 0.200
        answer_all(running)
        (next_photo,) = ask(queue, PhotoQuery(b"p"))
        await turn()
        for seconds in (0.010, 0.200):
            batch = await queue.next_batch()
            clock.now_s += seconds
            answer_all(batch)
        assert await settled([photo, text, next_photo]) == [b"0", b"0", b"0"]
    (photo,) = ask(queue, PhotoQuery(b"p"))
    await turn()
    running = await queue.next_batch()
    number, error = await admitted(queue, 100)
    assert number == 64
    assert error.retry_after_s == pytest.approx(1.4)
    answer_all(running)
    assert await settled([photo]) == [b"0"]
    queue.fail_waiting(WorkerDiedError())


async def test_a_bound_in_milliseconds_stands_for_the_learned_one(clock: Clock) -> None:
    queue = new_queue(max_batch=1, max_waiting=64, max_wait_ms=5000)
    await learn(queue, clock, 1, 0.010)
    await run_at_once(queue, clock, 50, 0.090)
    number, error = await admitted(queue, 100)
    assert number == 55  # the last after 4.95 s
    assert error.retry_after_s == 5
    queue.fail_waiting(WorkerDiedError())


async def test_a_closed_queue_refuses_queries_and_gives_out_those_that_wait() -> None:
    queue = new_queue()
    idle_lines = new_queue()
    idle_slot = asyncio.create_task(idle_lines.next_batch())
    tasks = ask(queue, TextQuery("a"))
    await turn()
    queue.close()
    idle_lines.close()
    with pytest.raises(ShuttingDownError):
        await queue.answer(search_job("b"))
    answer_all(await queue.next_batch())
    assert await settled(tasks) == [b"0"]
    assert await queue.next_batch() is None
    assert await idle_slot is None


async def test_a_slot_that_is_cancelled_loses_no_query() -> None:
    queue = new_queue()
    first = asyncio.create_task(queue.next_batch())
    await turn()
    second = asyncio.create_task(queue.next_batch())
    await turn()
    tasks = ask(queue, TextQuery("a"))
    await asyncio.sleep(0)  # the query has joined, and called the first slot
    first.cancel()
    async with asyncio.timeout(5):
        answer_all(await second)
    assert await settled(tasks) == [b"0"]
    assert first.cancelled()


async def test_metrics_count_waiting_queries_and_the_sizes_of_batches() -> None:
    metrics = Metrics()
    queue = QueryQueue(ServiceSettings(), metrics)
    read: Callable[[], str] = lambda: metrics.render().decode()  # noqa: E731
    tasks = ask(queue, *texts("a", "b", "c"), ItemQuery("i"))
    await turn()
    assert 'aladin_queue_depth{lane="text"} 3.0' in read()
    assert 'aladin_queue_depth{lane="encoded"} 1.0' in read()
    answer_all(await queue.next_batch())
    assert 'aladin_queue_depth{lane="text"} 0.0' in read()
    assert 'aladin_batch_size_sum{lane="text"} 3.0' in read()
    answer_all(await queue.next_batch())
    await settled(tasks)
