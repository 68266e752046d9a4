"""A client that hangs up, on a real connection and below the limit on bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvicorn
from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect

from aladin_service.http.middleware import BodyLimit
from aladin_service.http.shared_state import until_disconnect

pytestmark = pytest.mark.anyio

BODY = b'{"text": "a dog"}'


class Work:
    """Work that lasts until it is cancelled or let through, and tells of it."""

    def __init__(self) -> None:
        self.begun, self.cancelled, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.hung_up = asyncio.Event()

    async def run(self) -> str:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "done"


@asynccontextmanager
async def asking(work: Work) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve one route that reads its body, then does `work`, and ask for it."""
    app = FastAPI()
    app.add_middleware(BodyLimit, max_bytes=1000, max_bytes_in_all=1000, timeout_s=0.05)

    @app.post("/work")
    async def route(request: Request) -> str:
        assert await request.body() == BODY
        try:
            return await until_disconnect(request, work.run())
        except ClientDisconnect:
            work.hung_up.set()
            raise

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /work HTTP/1.1\r\nHost: test\r\nContent-Length: {len(BODY)}\r\n\r\n"
    writer.write(head.encode() + BODY)
    await work.begun.wait()
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await running


async def test_work_is_cancelled_when_its_client_hangs_up() -> None:
    work = Work()
    async with asyncio.timeout(10), asking(work) as (_, writer):
        writer.close()
        await work.cancelled.wait()
        await work.hung_up.wait()


async def test_work_is_not_cancelled_while_its_client_waits_longer_than_a_body_may_take() -> None:
    work = Work()
    async with asyncio.timeout(10), asking(work) as (reader, _):
        await asyncio.sleep(0.1)  # twice what the body might have taken
        work.go_on.set()
        assert b"200 OK" in await reader.readline()
        assert not work.cancelled.is_set()


class Receiving:
    """Stands for a request whose client hangs up when told."""

    def __init__(self) -> None:
        self.hang_up = asyncio.Event()

    async def receive(self) -> dict[str, str]:
        await self.hang_up.wait()
        return {"type": "http.disconnect"}

    async def awaiting(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await until_disconnect(cast(Request, self), work)


async def test_who_hangs_up_in_the_moment_of_the_answer_cancels_nothing() -> None:
    request = Receiving()
    listeners: list[asyncio.Task[object]] = []
    create = asyncio.create_task

    async def answer() -> int:
        request.hang_up.set()
        # As long as it takes until the disconnect is noticed, and not yet told.
        while not any(task.done() for task in listeners):
            await asyncio.sleep(0)
        return 7

    async def handle() -> int:
        result = await request.awaiting(answer())
        await asyncio.sleep(0)  # to send the answer
        return result

    def create_and_note(work: Coroutine[object, object, object]) -> asyncio.Task[object]:
        listeners.append(create(work))
        return listeners[-1]

    handling = create(handle())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_task", create_and_note)
        assert await handling == 7
