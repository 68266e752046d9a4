"""Workers that run, and jobs for them that another process can do as well."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aladin_index.encode.source_items import TextItem
from aladin_network.photos.memory import WithdrawnError, check_wanted
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered
from aladin_service.settings import ServiceSettings
from aladin_service.work.jobs import AddItems
from aladin_service.work.processes import ProcessWorkers
from aladin_service.work.worker import Job, Worker, WorkerPlan
from aladin_service.work.workers import ThreadWorkers, Workers

Kind = Literal["threads", "processes"]

# For a worker to be replaced, on a machine that does much else.
LONG_S = 30.0


def plan_of(index: Path, **settings: Any) -> WorkerPlan:
    chosen = ServiceSettings(**{"workers": 2, "query_precision": "float32", **settings})
    return WorkerPlan(index=index, settings=chosen)


@asynccontextmanager
async def running(plan: WorkerPlan, kind: Kind = "processes") -> AsyncGenerator[Any]:
    workers: Workers = (
        ProcessWorkers(plan, Metrics())
        if kind == "processes"
        else ThreadWorkers(plan.make(), plan.settings, Metrics())
    )
    try:
        await workers.start()
        yield workers
    finally:
        await workers.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not holds():
            await asyncio.sleep(0.005)


def ids(answered: Answered) -> list[str]:
    return [hit["id"] for hit in json.loads(answered.body)["hits"]]


def added(item_id: str) -> AddItems:
    return AddItems("texts", (TextItem(id=item_id, text="a red dog"),), "error")


@dataclass(frozen=True)
class Hold(Job[str]):
    """Occupies its thread until it is let go; files say what becomes of it."""

    folder: Path
    name: str = "hold"

    def run(self, worker: Worker) -> str:  # noqa: ARG002
        (self.folder / f"{self.name} begun").touch()
        end_s = time.monotonic() + LONG_S
        while not (self.folder / "go on").exists() and time.monotonic() < end_s:
            try:
                check_wanted()
            except WithdrawnError:
                (self.folder / f"{self.name} withdrawn").touch()
                raise
            time.sleep(0.005)
        return "done"


@dataclass(frozen=True)
class Fail(Job[None]):
    """Fails as nobody foresaw, or ends its thread or process."""

    error: type[BaseException] = ZeroDivisionError

    def run(self, worker: Worker) -> None:  # noqa: ARG002
        raise self.error


@dataclass(frozen=True)
class EndProcess(Job[None]):
    """Ends the process that does it, as when memory is short, or by a fault of native code."""

    by: signal.Signals = signal.SIGKILL

    def run(self, worker: Worker) -> None:  # noqa: ARG002
        signal.raise_signal(self.by)
