"""Number of threads that compute one batch of the network or one search."""

from __future__ import annotations

import os
import sys

_chosen: int | None = None


def compute_threads() -> int:
    """Return the number of threads for one batch or one search.

    What `set_compute_threads` chose, else the variable OMP_NUM_THREADS, which torch and FAISS read
    as well, else the number of processors that this process may use.
    """
    if _chosen is not None:
        return _chosen
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_compute_threads(count: int) -> None:
    """Choose the number of threads for the whole process, torch's included.

    Args:
        count: Number of threads; a service, whose workers compute side by side, chooses 1.
    """
    global _chosen
    _chosen = count
    limit_torch()


def limit_torch() -> None:
    """Give torch the chosen number of threads, if one was chosen and torch has been imported."""
    torch = sys.modules.get("torch")
    if _chosen is not None and torch is not None:
        torch.set_num_threads(_chosen)
