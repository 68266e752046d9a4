"""Workers that are processes: what they answer, what they share, and what becomes of a dead one."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aladin_index.format.layout import EngineLocation, write_location
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import SearchIndex
from aladin_network.errors import (
    EngineUnavailableError,
    GenerationRefusedError,
    IndexNotReadyError,
    NoWorkerError,
    WorkerDiedError,
)
from aladin_service.observe.metrics import Metrics
from aladin_service.work import crashing_generations, processes, worker_link
from aladin_service.work.health import LiveState
from aladin_service.work.jobs import DescribeIndex, GetItem
from aladin_service.work.messages import UnforeseenError
from aladin_service.work.process_start import prepare_processes, try_in_process
from aladin_service.work.processes import ProcessWorkers
from aladin_service.work.sources import FilesSource
from aladin_service.work.worker import Job, Worker, WorkerPlan
from aladin_service.work.worker_link import WorkerLink
from tests.service.searching import search_job
from tests.service.work.published import publish_copy
from tests.service.work.running import LONG_S, EndProcess, added, ids, plan_of, running, until

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z"


async def test_work_that_a_killed_worker_had_not_begun_goes_to_the_other(
    process_workers: ProcessWorkers,
) -> None:
    victim, other = process_workers.health().pids.values()
    os.kill(victim, signal.SIGSTOP)  # it reads no more: whatever it is sent, it does not begin
    waiting = [
        asyncio.create_task(process_workers.search(search_job(f"dog {n}"))) for n in range(12)
    ]
    jobs = [asyncio.create_task(process_workers.call(DescribeIndex())) for _ in range(12)]
    await asyncio.sleep(0)
    os.kill(victim, signal.SIGKILL)
    await until(lambda: not process_workers.health().ready)
    assert list(process_workers.health().pids.values()) == [other]
    answers = await asyncio.gather(*waiting)
    assert all(len(ids(answer)) == 6 for answer in answers)
    assert all(await asyncio.gather(*jobs))
    await until(lambda: process_workers.health().ready)
    assert len(set(process_workers.health().pids.values()) - {victim, other}) == 1
    assert not is_alive(victim)


async def test_a_batch_that_takes_too_long_and_a_worker_that_hangs_are_ended(
    index: Path, tmp_path: Path
) -> None:
    """The status thread of the first goes on to report that it is alive."""
    plan = SlowPlan(**vars(plan_of(index, workers=1, job_timeout_s=1.0)), slow=tmp_path / "slow")
    async with running(plan) as workers:
        (pid,) = workers.health().pids.values()
        (tmp_path / "slow").touch()
        with pytest.raises(WorkerDiedError):
            await workers.search(search_job())
        (tmp_path / "slow").unlink()
        assert len(ids(await workers.search(search_job()))) == 6
        (second,) = workers.health().pids.values()
        assert second != pid
        os.kill(second, signal.SIGSTOP)
        assert len(ids(await workers.search(search_job()))) == 6  # of the next worker
        assert not is_alive(second)


async def test_work_and_results_that_cannot_be_sent_fail_alone(
    process_workers: ProcessWorkers,
) -> None:
    endless: list[object] = []
    for _ in range(10_000):
        endless = [endless]
    pids = process_workers.health().pids
    for _ in range(5):  # more than there are threads for either
        with pytest.raises(RecursionError):
            await process_workers.search(search_job(filter={"a": endless}))
        with pytest.raises(RecursionError):
            await process_workers.call(ReturnDeep(endless))
        with pytest.raises(UnforeseenError, match="RecursionError"):
            await process_workers.call(ReturnDeep([]))
    assert len(ids(await process_workers.search(search_job()))) == 6
    assert process_workers.health().pids == pids


@pytest.mark.slow
async def test_all_are_replaced_when_the_server_of_forks_is_killed(index: Path) -> None:
    async with running(plan_of(index, workers=2)) as workers:
        before = set(workers.health().pids.values())
        parents = {Path(f"/proc/{pid}/stat").read_text().split()[3] for pid in before}
        (forks,) = map(int, parents)
        os.kill(forks, signal.SIGKILL)  # and the workers with it
        await until(lambda: not any(map(is_alive, before)))
        await until(lambda: not before & set(workers.health().pids.values()))
        await until(lambda: workers.health().ready)
        assert len(ids(await workers.search(search_job()))) == 6


async def test_without_workers_that_can_be_started_everything_is_refused_until_there_is_one(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits, what another worker was to take over, and what comes then."""
    begin = worker_link.start_process
    faults: list[Exception] = [OSError("no room"), EOFError("the server of forks is gone")]
    broken: list[bool] = []

    def begin_later(plan: WorkerPlan) -> object:
        if faults:
            raise faults.pop()
        if broken:
            raise OSError("no room")
        return begin(plan)

    monkeypatch.setattr(worker_link, "start_process", begin_later)
    async with running(
        plan_of(index, workers=1, max_batch=1, query_threads=1, max_wait_ms=60_000)
    ) as workers:
        assert not workers.health().ready  # it is tried again
        await until(lambda: workers.health().ready)
        (pid,) = workers.health().pids.values()
        monkeypatch.setattr(processes, "_MISSING_S", 1.0)
        broken.append(True)
        os.kill(pid, signal.SIGSTOP)  # some are sent to it, and it does not begin
        waiting = [asyncio.create_task(workers.search(search_job(f"dog {n}"))) for n in range(6)]
        waiting += [asyncio.create_task(workers.call(DescribeIndex())) for _ in range(6)]
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(LONG_S):
            results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [NoWorkerError] * 12
        assert isinstance(workers.refusal("text"), NoWorkerError)
        for refused in (workers.search(search_job()), workers.call(DescribeIndex())):
            with pytest.raises(NoWorkerError):
                await refused
        broken.clear()
        await until(lambda: workers.health().ready)
        assert workers.refusal("text") is None
        assert len(ids(await workers.search(search_job()))) == 6
        assert await workers.call(DescribeIndex())


@pytest.mark.parametrize(
    ("mine", "others", "behind"),
    [
        (None, [LiveState(2)], False),  # it has said nothing yet
        (LiveState(2), [LiveState(2)], False),
        (LiveState(1), [LiveState(2)], False),  # it has not looked yet
        (LiveState(1, 2, "damaged"), [], False),
        (LiveState(1, 2, "damaged"), [None], False),
        (LiveState(1, 2, "damaged"), [LiveState(1, 2, "damaged")], False),  # all refuse it
        (LiveState(1, 2, "damaged"), [LiveState(3)], False),
        (LiveState(1, 2, "damaged"), [LiveState(2)], True),
        (LiveState(1, 2, "damaged"), [None, LiveState(1), LiveState(2, 3, "damaged")], True),
        (LiveState(1, None, "CURRENT cannot be read"), [LiveState(None)], False),
        (LiveState(None, 2, "damaged"), [LiveState(2)], True),
    ],
)
def test_a_worker_that_refuses_what_another_has_opened_is_behind(
    index: Path, mine: LiveState | None, others: list[LiveState | None], behind: bool
) -> None:
    plan = plan_of(index)
    workers = ProcessWorkers(plan, Metrics())
    links = [WorkerLink(place, plan, lambda *_: None) for place in range(1 + len(others))]
    for link, live in zip(links, [mine, *others], strict=True):
        link.live = live
    workers._links.update(enumerate(links))
    assert workers._is_behind(links[0]) is behind
    assert workers._can_serve(links[0]) is (mine is not None and not behind)
    ended = [link for link in links if link.live is not None]
    for link in ended:
        link.ended.set()
        assert not workers._can_serve(link)


@dataclass(frozen=True, kw_only=True)
class DeadlyPlan(WorkerPlan):
    """Of workers that end by a fault of native code at generation 2 while a file is there."""

    damage: Path

    def make(self, *arguments: Any) -> Worker:
        opened, damage = FilesSource.open, self.damage

        def open_or_end(
            source: FilesSource, checkpoint: Any = None, generation: int | None = None
        ) -> SearchIndex:
            if damage.exists() and (generation or source.live_number()) == 2:
                signal.raise_signal(signal.SIGSEGV)
            return opened(source, checkpoint, generation)

        FilesSource.open = open_or_end  # type: ignore[method-assign]
        return super().make(*arguments)


@dataclass(frozen=True, kw_only=True)
class SlowPlan(WorkerPlan):
    """Of workers whose queries take long for as long as a file is there."""

    slow: Path

    def make(self, *arguments: Any) -> Worker:
        worker, slow = super().make(*arguments), self.slow
        answer = worker.answer

        def answer_late(*batch: Any) -> Any:
            while slow.exists():
                time.sleep(0.01)
            return answer(*batch)

        worker.answer = answer_late
        return worker


@pytest.fixture
def damage(index: Path, tmp_path: Path) -> tuple[DeadlyPlan, Path]:
    """A plan of workers that die at generation 2, and the file that makes them."""
    file = tmp_path / "damage"
    file.touch()
    return DeadlyPlan(**vars(plan_of(index)), damage=file), file


async def test_a_generation_that_crashes_workers_is_refused_until_a_trial_opens_it(
    index: Path,
    damage: tuple[DeadlyPlan, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(crashing_generations, "_FIRST_RETRY_S", 0.5)
    monkeypatch.setattr(crashing_generations, "_LONGEST_RETRY_S", 0.5)
    caplog.set_level(logging.INFO, processes.__name__)
    plan, file = damage
    async with running(plan) as workers:
        assert workers.health().generation == 1
        await asyncio.to_thread(publish_copy, index, 2)
        await until(lambda: workers.health().ready and workers.health().refused is not None)
        health = workers.health()
        assert health.generation == 1
        assert "000002: a process died while opening it (SIGSEGV)" in (health.refused or "")
        assert (await workers.search(search_job())).generation == 1
        with pytest.raises(GenerationRefusedError):
            await workers.call(added("new"))
        # It is tried again, and no worker ends by that.
        await until(lambda: "trial of the published generation ended: SIGSEGV" in caplog.text)
        assert workers.health() == health

        file.unlink()  # the files are put right
        await until(lambda: workers.health().generation == 2 and workers.health().ready)
        assert workers.health().refused is None
        assert workers.health().pids == health.pids
        await workers.call(added("new"))


async def test_a_service_that_starts_with_a_deadly_generation_reports_that_none_is_live(
    index: Path, damage: tuple[DeadlyPlan, Path]
) -> None:
    plan, file = damage
    publish_copy(index, 2)
    prepare_processes(index)
    assert await asyncio.to_thread(try_in_process, plan) == "SIGSEGV"
    async with running(plan) as workers:
        await until(lambda: workers.health().alive == 2)
        assert (workers.health().generation, workers.health().ready) == (None, False)
        assert "SIGSEGV" in (workers.health().refused or "")
        with pytest.raises(IndexNotReadyError, match="damaged"):
            await workers.search(search_job())
        await asyncio.to_thread(rollback_index, index, 1)
        await until(lambda: workers.health().ready)
        assert (await workers.search(search_job())).generation == 1
    file.unlink()
    assert await asyncio.to_thread(try_in_process, plan) == "exit status 0"


async def test_a_generation_at_which_workers_crash_again_and_again_gives_way_to_the_previous_one(
    index: Path,
) -> None:
    async with running(plan_of(index)) as workers:
        with pytest.raises(WorkerDiedError):  # there is none before: nothing could be better
            await workers.call(EndProcess(signal.SIGSEGV))
        await until(lambda: workers.health().ready)
        await asyncio.to_thread(publish_copy, index, 2)
        await until(lambda: workers.health().generation == 2)
        await workers.call(added("new"))
        for _ in range(3):
            await until(lambda: workers.health().ready and workers.health().generation == 2)
            await workers.call(DescribeIndex())
            with pytest.raises(WorkerDiedError):
                await workers.call(EndProcess(signal.SIGSEGV))
        await until(lambda: workers.health().ready and workers.health().generation == 1)
        assert "3 processes died while searching it" in (workers.health().refused or "")
        assert (await workers.search(search_job())).generation == 1
        with pytest.raises(GenerationRefusedError):
            await workers.call(added("new"))
        await asyncio.to_thread(publish_copy, index, 3)
        await until(lambda: workers.health().generation == 3 and workers.health().refused is None)


@dataclass(frozen=True)
class ReturnDeep(Job[object]):
    """Returns what is too deep to be sent back, and may be too deep to be sent at all."""

    content: object

    def run(self, worker: Worker) -> object:  # noqa: ARG002
        result: list[object] = []
        for _ in range(10_000):
            result = [result]
        return result


@pytest.mark.cluster
async def test_workers_start_while_the_engine_is_away(index: Path, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    shutil.copytree(index / "model", folder / "model")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    nobody = EngineLocation(url=f"http://127.0.0.1:{port}", name="photos")
    write_location(folder, nobody)
    async with running(plan_of(folder, engine_timeout_s=0.2)) as workers:
        health = workers.health()
        assert (health.alive, health.engine, health.ready) == (2, "unavailable", False)
        with pytest.raises(EngineUnavailableError):
            await workers.search(search_job())
        with pytest.raises(EngineUnavailableError):
            await workers.call(GetItem("images", "plain"))
