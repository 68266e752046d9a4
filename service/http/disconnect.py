"""A client that hangs up stops costing: whatever is done for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

T = TypeVar("T")


async def until_disconnect(request: Request, work: Awaitable[T]) -> T:
    """Wait for something as long as the client does.

    Args:
        request: its body has been read.
        work: cancelled when the client hangs up.

    Raises:
        ClientDisconnect: it did.
        Exception: whatever the work raises.
    """
    waiter = asyncio.current_task()
    assert waiter is not None  # a coroutine that runs is some task's
    has_hung_up = is_over = False

    def stop(listener: asyncio.Task[None]) -> None:
        nonlocal has_hung_up
        # It may be called when the work is done: a client that leaves in that moment, as the
        # answer is made, would cancel whatever its request does next.
        if not is_over and not listener.cancelled() and listener.exception() is None:
            has_hung_up = True
            waiter.cancel()

    listener = asyncio.create_task(_disconnect(request))
    listener.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        # The server cancels as well, when it ends; that is no client's doing.
        if has_hung_up and waiter.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        is_over = True
        listener.cancel()


async def _disconnect(request: Request) -> None:
    """Return when the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
