"""The load on an HTTP service, against a service of some lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from benchmarks.service.http_connection import Answer, Connection, ConnectionFailedError
from benchmarks.service.load_client import ClosedLoop, OpenLoop, http_request, make_load, run_load

REQUESTS = [http_request("GET", f"/{status}") for status in (200, 404, 429)]
Handle = Callable[[bytes], Awaitable[bytes]]


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of asynchronous tests."""
    return "asyncio"


async def answer_as_asked(request: bytes) -> bytes:
    """Answer with the status in the path."""
    status = int(request.split()[1][1:])
    retry = "Retry-After: 1\r\n" if status == 429 else ""
    return f"HTTP/1.1 {status} Some\r\n{retry}Content-Length: 3\r\n\r\n{status}".encode()


@asynccontextmanager
async def served(handle: Handle, requests_a_connection: int = 1000) -> AsyncGenerator[str]:
    """The URL of a service that answers with what `handle` returns; empty hangs up."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for _ in range(requests_a_connection):
                answer = await handle(await reader.readuntil(b"\r\n\r\n"))
                if not answer:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


def wrong_unless_200(place: int, answer: Answer) -> str | None:
    """A validator that other processes can import."""
    return None if answer.status == 200 else f"place {place} has {answer.status}"


@pytest.mark.anyio
async def test_a_closed_loop_asks_in_turn_and_writes_all_down() -> None:
    async with served(answer_as_asked) as url:
        plan = ClosedLoop(url, REQUESTS, seconds=10, clients=2, most=9, keep=True)
        result = await make_load(plan)
        judged = await make_load(
            ClosedLoop(url, REQUESTS, seconds=10, most=3, validate=wrong_unless_200)
        )
        elsewhere = await asyncio.to_thread(run_load, ClosedLoop(url, REQUESTS, seconds=30, most=6))
    assert sorted(result.request.tolist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    expected = {0: 200, 1: 404, 2: 429}
    assert [expected[place] for place in result.request] == result.status.tolist()
    assert (result.retry_after == (result.status == 429)).all()
    bodies = [answer.body.decode() for answer in result.answers if answer]
    assert bodies == [str(status) for status in result.status]
    assert (result.ok.sum(), result.fault_count) == (3, 0)
    assert (result.latency_ms > 0).all()
    assert judged.faults == ["request 1: place 1 has 404", "request 2: place 2 has 429"]
    assert sorted(elsewhere.status.tolist()) == [200, 200, 404, 404, 429, 429]
    assert elsewhere.cpu_s > 0


@pytest.mark.anyio
async def test_a_service_that_hangs_up_is_a_fault_unless_the_connection_was_idle() -> None:
    async def hang_up(_: bytes) -> bytes:
        return b""

    async def half(_: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"

    async with served(answer_as_asked, requests_a_connection=2) as url:
        result = await make_load(ClosedLoop(url, REQUESTS[:1], seconds=10, most=7))
    assert result.status.tolist() == [200] * 7
    async with served(hang_up) as url:
        result = await make_load(ClosedLoop(url, REQUESTS, seconds=10, most=3))
    assert (result.status.tolist(), result.fault_count) == ([0, 0, 0], 3)
    async with served(half, requests_a_connection=1) as url:
        connection = Connection("127.0.0.1", int(url.rpartition(":")[2]))
        with pytest.raises(ConnectionFailedError, match="inside of the body"):
            await connection.exchange(REQUESTS[0])


def test_moments_are_a_poisson_process_fixed_beforehand() -> None:
    plan = OpenLoop("http://127.0.0.1:1", REQUESTS, seconds=100, rate_per_s=50)
    moments = plan.moments_s()
    assert (moments == plan.moments_s()).all()
    assert abs(len(moments) - 5000) < 5 * 5000**0.5
    gaps = np.diff(moments)
    # Exponential gaps: the standard deviation is the mean.
    assert (gaps >= 0).all() and abs(gaps.std() / gaps.mean() - 1) < 0.1


@pytest.mark.anyio
async def test_a_service_that_stalls_is_charged_for_all_that_should_have_been_asked() -> None:
    """Half a second of silence: a closed loop sees one slow answer, an open loop all of them."""
    stalled_s = 0.5
    loop = asyncio.get_running_loop()

    def stalling() -> Handle:
        end_s = loop.time() + stalled_s

        async def handle(request: bytes) -> bytes:
            await asyncio.sleep(max(0.0, end_s - loop.time()))
            return await answer_as_asked(request)

        return handle

    async with served(stalling()) as url:
        closed = await make_load(ClosedLoop(url, REQUESTS[:1], seconds=2 * stalled_s, clients=1))
    async with served(stalling()) as url:
        plan = OpenLoop(url, REQUESTS[:1], seconds=2 * stalled_s, rate_per_s=200)
        opened = await make_load(plan)
    slow_ms = 1000 * stalled_s / 2
    begun = closed.planned_s < stalled_s / 2
    assert (closed.latency_ms[begun] > slow_ms).tolist() == [True]
    assert (closed.latency_ms > slow_ms).sum() < 5  # a busy machine stalls by itself, too
    # About half of what was planned during the silence waited for more than half of it.
    assert (opened.latency_ms > slow_ms).sum() > 20
    early = opened.planned_s < stalled_s / 2
    waited_ms = 1000 * (stalled_s - opened.planned_s[early])
    assert (opened.latency_ms[early] > waited_ms - 50).all()
    assert len(opened.status) == len(plan.moments_s())
