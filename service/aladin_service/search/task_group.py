"""Tasks of one request that succeed or fail together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


@asynccontextmanager
async def task_group() -> AsyncGenerator[asyncio.TaskGroup]:
    """Run tasks as `asyncio.TaskGroup` does, and raise the first error by itself.

    Further errors are dropped: they result from cancelling the other tasks, or came too late to be
    the reason of the failure.
    """
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first of several errors, those of nested groups included."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
