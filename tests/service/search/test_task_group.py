"""Tasks that fail together raise the first error."""

from __future__ import annotations

import asyncio

import pytest

from aladin_network.errors import InputError
from aladin_service.search.task_group import task_group

pytestmark = pytest.mark.anyio


async def fail(after_s: float, error: Exception) -> None:
    await asyncio.sleep(after_s)
    raise error


async def test_all_tasks_have_results() -> None:
    async with task_group() as group:
        tasks = [group.create_task(asyncio.sleep(0, result=number)) for number in range(3)]
    assert [task.result() for task in tasks] == [0, 1, 2]


async def test_the_first_error_is_raised_by_itself_and_the_others_are_cancelled() -> None:
    first, later = InputError("first"), ValueError("later")
    waiting: list[asyncio.Task[None]] = []
    with pytest.raises(InputError, match="first") as raised:
        async with task_group() as group:
            waiting.append(group.create_task(asyncio.sleep(60)))
            group.create_task(fail(0.01, first))
            group.create_task(fail(30, later))
    assert raised.value is first
    assert raised.value.__cause__ is None
    assert waiting[0].cancelled()


async def test_errors_of_nested_groups_and_of_the_block_are_raised_likewise() -> None:
    async def nested() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(0, InputError("inner")))

    with pytest.raises(InputError, match="inner"):
        async with task_group() as group:
            group.create_task(nested())
    with pytest.raises(ValueError, match="block"):
        async with task_group():
            raise ValueError("block")


async def test_a_timeout_of_the_group_is_a_timeout_error() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), task_group() as group:
            group.create_task(asyncio.sleep(60))
