"""Threads: how many torch computes with, and one that prepares the next items."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def torch_threads(count: int | None) -> Generator[None]:
    """Compute with `count` threads inside the block, or None for torch's own choice.

    A step of a small network consists of many short products, after each of which the threads
    wait for each other. One thread is hardly slower on an idle machine, several times faster than
    two on a busy one, and gives the same numbers whatever the number of cores.
    """
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prefetch(items: Generator[T], count: int) -> Generator[T]:
    """Yield items in order while a thread prepares the next ones.

    An error in the preparation is raised in place of its item. Closing or dropping the generator
    early ends the thread after its current item.
    """
    # Each future holds a list of one item, or of none at the end: it cannot carry StopIteration.
    waiting: deque[Future[list[T]]] = deque()
    with closing(items), ThreadPoolExecutor(1, thread_name_prefix="look-ahead") as thread:
        try:
            for _ in range(count):
                waiting.append(thread.submit(list, islice(items, 1)))
            while item := waiting.popleft().result():
                waiting.append(thread.submit(list, islice(items, 1)))
                yield item[0]
        finally:
            for each in waiting:
                each.cancel()
