"""An index that a test may change, a clock, and running workers of both kinds."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aladin_service.work import processes
from aladin_service.work import workers as threads
from tests.service.work.published import Clock
from tests.service.work.running import Kind, plan_of, running


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


@pytest.fixture
def clock() -> Clock:
    """Time that a test moves on."""
    return Clock()


@pytest.fixture(scope="module", autouse=True)
def patience() -> AsyncIterator[None]:
    """Replacing a process may take longer than usual on a machine that does much else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_MISSING_S", 30.0)
        patch.setattr(threads, "_RESTART_S", 0.05)
        yield


async def _shared(kind: Kind, index_folder: Path, folder: Path) -> AsyncIterator[Any]:
    index = Path(shutil.copytree(index_folder, folder / "index"))
    settings = {"max_batch": 1, "query_threads": 1, "max_wait_ms": 60_000, "max_waiting": 12}
    async with running(plan_of(index, **settings), kind) as workers:
        yield workers


@pytest.fixture(scope="module")
async def thread_workers(
    index_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Any]:
    """Threads of which one answers queries; each test leaves them ready."""
    async for workers in _shared("threads", index_folder, tmp_path_factory.mktemp("threads")):
        yield workers


@pytest.fixture(scope="module")
async def process_workers(
    index_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Any]:
    """Two processes that answer one query at a time; each test leaves both ready."""
    async for workers in _shared("processes", index_folder, tmp_path_factory.mktemp("processes")):
        yield workers
