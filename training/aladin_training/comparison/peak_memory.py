"""Memory that a piece of work allocates at its most."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Return by how much the memory of tensors grows while a function runs, at its most.

    On the CPU it is exact: the largest running sum of all allocations and releases of torch's
    allocator, buffers inside of operators included. On a GPU it is torch's own maximum. What is
    released but was allocated before the call counts against it; release it before.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    # Otherwise the profiler's library writes lines about itself to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    assert recorded.profiler is not None
    assert recorded.profiler.kineto_results is not None
    recorded_events: list[Any] = recorded.profiler.kineto_results.events()  # partly untyped
    events = [event for event in recorded_events if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
