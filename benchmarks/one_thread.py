"""Measuring as a search runs: on one thread."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from index.ann.faiss_library import faiss


@contextmanager
def one_thread() -> Generator[None]:
    """Keep torch and FAISS to one thread inside the block."""
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])
