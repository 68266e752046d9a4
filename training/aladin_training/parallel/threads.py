"""How many threads torch computes with.

What comes next is made ready in a thread while the last is worked on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from typing import TypeVar

import torch


@contextmanager
def torch_threads(count: int | None) -> Generator[None]:
    """Compute with `count` threads inside the block (None: as many as torch chose).

    The steps of small networks consist of many short products, after each of which the threads
    wait for each other. One thread loses little on an idle machine, is several times faster
    than two where something else runs, and gives the same numbers whatever the number of cores.
    """
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


T = TypeVar("T")


def prefetch(items: Generator[T], count: int) -> Generator[T]:
    """Pass items on in their order, the next ones made ready in a thread of their own.

    An error in the making is raised where its item would have come. Whoever stops early and
    closes, or drops, what this returns ends the thread after the item that it is at.

    Args:
        items: made one at a time; closed at the end.
        count: that are ready, or being made, while one is worked on; at least 1.
    """
    # Each holds one item, or none behind the last: a future cannot carry StopIteration.
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
