"""Memory of a process, against what it takes."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from aladin_service.http.state_metrics import process_memory

linux_only = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")

SIZE_BYTES = 64 * 2**20
SLACK_BYTES = 16 * 2**20  # what else changes meanwhile


@linux_only
def test_own_memory_grows_by_what_is_filled() -> None:
    before = process_memory(os.getpid())
    # Pages of its own: an array may get memory that the process kept from an earlier one.
    with mmap.mmap(-1, SIZE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        for _ in range(SIZE_BYTES // 2**20):
            pages.write(b"\1" * 2**20)
        after = process_memory(os.getpid())
    assert before is not None
    assert after is not None
    assert abs(after.own - before.own - SIZE_BYTES) < SLACK_BYTES


@linux_only
def test_a_mapped_file_is_shared_memory(tmp_path: Path) -> None:
    file = tmp_path / "mapped"
    file.write_bytes(b"\1" * SIZE_BYTES)
    before = process_memory(os.getpid())
    mapped = np.memmap(file, mode="r")
    assert mapped.sum(dtype=np.int64) == SIZE_BYTES  # has all of it read
    after = process_memory(os.getpid())
    assert before is not None
    assert after is not None
    assert abs(after.shared - before.shared - SIZE_BYTES) < SLACK_BYTES
    assert abs(after.own - before.own) < SLACK_BYTES


def test_a_process_that_is_not_there_has_none() -> None:
    assert process_memory(sys.maxsize) is None
