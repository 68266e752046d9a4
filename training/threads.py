"""How many threads torch computes with."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

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
