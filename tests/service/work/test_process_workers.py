"""Workers that are processes: what they answer, what they share, and what becomes of a dead one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from aladin_index.encode.source_items import TextItem
from aladin_index.format.disk import only_builder
from aladin_index.format.layout import (
    CURRENT,
    NEW_GENERATION,
    EngineLocation,
    generation_folder,
    write_location,
)
from aladin_index.format.manifest import read_manifest, write_manifest
from aladin_index.generations.compact import compact_index
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import SearchIndex
from aladin_index.generations.writer import publish_generation
from aladin_index.search.options import SearchOptions
from aladin_network.errors import (
    EngineUnavailableError,
    GenerationRefusedError,
    IndexNotReadyError,
    NoWorkerError,
    UnknownItemError,
    WorkerDiedError,
)
from aladin_network.photos.memory import WithdrawnError, check_wanted
from aladin_network.types import Target
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, Query, SearchJob, TextQuery
from aladin_service.settings import ServiceSettings
from aladin_service.work import crashing_generations, worker_link
from aladin_service.work import processes as process_workers
from aladin_service.work.health import LiveState
from aladin_service.work.jobs import AddItems, DescribeIndex, GetItem
from aladin_service.work.messages import UnforeseenError
from aladin_service.work.process_start import prepare_processes, try_in_process
from aladin_service.work.processes import ProcessWorkers
from aladin_service.work.sources import FilesSource
from aladin_service.work.worker import Job, Worker, WorkerPlan
from aladin_service.work.worker_link import WorkerLink

pytestmark = pytest.mark.anyio

Start = Callable[..., AbstractAsyncContextManager[ProcessWorkers]]

# For a worker to be replaced, on a machine that does much else.
_LONG_S = 30.0


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    """An index that a test may change."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


@pytest.fixture
def start(index: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts workers of the index: ``async with start(workers=2) as workers``."""

    # Replacing a worker may take longer than that on a machine that does much else.
    monkeypatch.setattr(process_workers, "_MISSING_S", _LONG_S)

    @asynccontextmanager
    async def run(**settings: float) -> AsyncGenerator[ProcessWorkers]:
        limits = ServiceSettings(**{"workers": 2, "query_precision": "float32", **settings})
        workers = ProcessWorkers(WorkerPlan(index=index, settings=limits), Metrics())
        try:
            await workers.start()
            yield workers
        finally:
            await workers.stop()

    return run


def search(text: str = "a dog", target: Target = "images", k: int = 100) -> SearchJob:
    query: Query = TextQuery(text)
    options = SearchOptions(k=k)
    return SearchJob(query=query, target=target, options=options, received_s=time.monotonic())


def ids(answered: Answered) -> list[str]:
    return [hit["id"] for hit in json.loads(answered.body)["hits"]]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_LONG_S):
        while not holds():
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z"


async def test_they_answer_share_what_is_added_and_follow_what_is_published(
    start: Start, index: Path
) -> None:
    async with start() as workers:
        health = workers.health()
        assert (health.wanted, health.alive, health.generation) == (2, 2, 1)
        first, second = health.pids.values()
        answers = await asyncio.gather(*(workers.search(search(f"a {n} dog")) for n in range(20)))
        assert all(len(ids(answer)) == 6 for answer in answers)
        with pytest.raises(UnknownItemError, match="'nobody'"):
            await workers.call(GetItem("images", "nobody"))

        # What one worker has added, the next search of either finds.
        for number in range(6):
            item = TextItem(id=f"new {number}", text=f"a red dog {number}")
            await workers.call(AddItems("texts", (item,), "error"))
            found = await asyncio.gather(*(workers.search(search(target="texts")) for _ in "12345"))
            assert all(f"new {number}" in ids(answer) for answer in found)

        # So it is with a generation that somebody else publishes.
        await asyncio.to_thread(compact_index, index, keep=0)
        found = await asyncio.gather(*(workers.search(search(target="texts")) for _ in "12345"))
        assert {answer.generation for answer in found} == {2}
        # One that has nothing to do follows as well.
        await until(lambda: _drop(index))
        assert workers.health().generation == 2
    await until(lambda: not is_alive(first) and not is_alive(second))


def _drop(index: Path) -> bool:
    """Compact again; whether nobody has the first generation open any more."""
    compact_index(index, keep=0)
    return not (index / "generations" / "000001").exists()


async def test_a_worker_that_is_killed_takes_nothing_with_it_that_it_had_not_begun(
    start: Start,
) -> None:
    async with start(workers=2, max_batch=1, query_threads=1, max_wait_ms=60_000) as workers:
        victim, other = workers.health().pids.values()
        os.kill(victim, signal.SIGSTOP)  # it reads no more: whatever it is sent, it does not begin
        waiting = [asyncio.create_task(workers.search(search(f"dog {n}"))) for n in range(12)]
        jobs = [asyncio.create_task(workers.call(DescribeIndex())) for _ in range(12)]
        await asyncio.sleep(0)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: not workers.health().ready)
        assert list(workers.health().pids.values()) == [other]
        answers = await asyncio.gather(*waiting)
        assert all(len(ids(answer)) == 6 for answer in answers)
        assert all(state.manifest.generation == 1 for state in await asyncio.gather(*jobs))
        await until(lambda: workers.health().ready)
        assert len(set(workers.health().pids.values()) - {victim, other}) == 1
        assert not is_alive(victim)


@pytest.mark.slow
async def test_a_worker_that_hangs_is_killed_and_replaced(start: Start) -> None:
    async with start(workers=1, job_timeout_s=1.5) as workers:
        (pid,) = workers.health().pids.values()
        os.kill(pid, signal.SIGSTOP)
        answer = await workers.search(search())  # of the next worker
        assert len(ids(answer)) == 6
        assert not is_alive(pid)


async def test_what_a_worker_has_begun_fails_with_it(start: Start) -> None:
    async with start(workers=1) as workers:
        with pytest.raises(WorkerDiedError):
            await workers.call(EndWorker())
        assert not workers.health().ready
        assert len(ids(await workers.search(search()))) == 6  # of the next worker
        await until(lambda: workers.health().ready)


async def test_what_cannot_be_sent_fails_alone(start: Start) -> None:
    endless: list[object] = []
    for _ in range(10_000):
        endless = [endless]
    query, options = TextQuery("a dog"), SearchOptions(filter={"a": endless})
    deep = SearchJob(query=query, target="images", options=options, received_s=time.monotonic())
    async with start(workers=1, query_threads=1) as workers:
        (pid,) = workers.health().pids.values()
        for _ in range(5):  # more than there are threads for either
            with pytest.raises(RecursionError):
                await workers.search(deep)
            with pytest.raises(RecursionError):
                await workers.call(ReturnDeep(endless))
            with pytest.raises(UnforeseenError, match="RecursionError"):
                await workers.call(ReturnDeep([]))
        assert len(ids(await workers.search(search()))) == 6
        assert list(workers.health().pids.values()) == [pid]


async def test_a_worker_that_cannot_be_started_is_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = worker_link.start_process
    faults: list[Exception] = [OSError("no room"), EOFError("the server of forks is gone")]

    def begin_later(plan: WorkerPlan) -> object:
        if faults:
            raise faults.pop()
        return begin(plan)

    monkeypatch.setattr(worker_link, "start_process", begin_later)
    async with start(workers=1) as workers:
        assert not workers.health().ready
        await until(lambda: workers.health().ready)
        assert len(ids(await workers.search(search()))) == 6


@pytest.mark.slow
async def test_all_are_replaced_when_the_server_of_forks_is_killed(start: Start) -> None:
    async with start(workers=2) as workers:
        before = set(workers.health().pids.values())
        parents = {Path(f"/proc/{pid}/stat").read_text().split()[3] for pid in before}
        (forks,) = map(int, parents)
        os.kill(forks, signal.SIGKILL)  # and the workers with it
        await until(lambda: not any(map(is_alive, before)))
        await until(lambda: not before & set(workers.health().pids.values()))
        await until(lambda: workers.health().ready)
        assert len(ids(await workers.search(search()))) == 6


@pytest.mark.slow
async def test_a_broken_generation_is_told_and_outlived(start: Start, index: Path) -> None:
    async with start(workers=2) as workers:
        (index / CURRENT).unlink()
        (index / CURRENT).write_text("no number\n")
        await until(lambda: workers.health().refused is not None)
        health = workers.health()
        assert (health.ready, health.generation) == (True, 1)
        assert "no number" in (health.refused or "")
        # A worker that is started now cannot open what is live: it begins with what the other has.
        os.kill(next(iter(health.pids.values())), signal.SIGKILL)
        await until(lambda: not workers.health().ready)
        await until(lambda: workers.health().ready)
        answers = await asyncio.gather(*(workers.search(search(f"dog {n}")) for n in range(10)))
        assert {answer.generation for answer in answers} == {1}


async def test_nobody_waits_for_workers_that_cannot_be_started(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what waits, nor what another worker was to take over, nor what comes then."""
    begin = worker_link.start_process
    faults: list[bool] = []

    def begin_or_fail(plan: WorkerPlan) -> object:
        if faults:
            raise OSError("no room")
        return begin(plan)

    async with start(workers=1, max_batch=1, query_threads=1, max_wait_ms=60_000) as workers:
        (pid,) = workers.health().pids.values()
        monkeypatch.setattr(worker_link, "start_process", begin_or_fail)
        monkeypatch.setattr(process_workers, "_MISSING_S", 1.0)
        faults.append(True)
        os.kill(pid, signal.SIGSTOP)  # some are sent to it, and it does not begin
        waiting = [asyncio.create_task(workers.search(search(f"dog {n}"))) for n in range(6)]
        waiting += [asyncio.create_task(workers.call(DescribeIndex())) for _ in range(6)]
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(_LONG_S):
            results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [NoWorkerError] * 12
        assert isinstance(workers.refusal("text"), NoWorkerError)
        for refused in (workers.search(search()), workers.call(DescribeIndex())):
            with pytest.raises(NoWorkerError):
                await refused
        faults.clear()
        await until(lambda: workers.health().ready)
        assert workers.refusal("text") is None
        assert len(ids(await workers.search(search()))) == 6
        assert (await workers.call(DescribeIndex())).manifest.generation == 1


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
def test_a_worker_is_behind_that_refuses_what_another_has_taken_up(
    index: Path, mine: LiveState | None, others: list[LiveState | None], behind: bool
) -> None:
    plan = WorkerPlan(index=index, settings=ServiceSettings(workers=2))
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


def publish_copy(index: Path, number: int) -> None:
    """Publish generation 1 again under another number."""
    with only_builder(index):
        folder = index / NEW_GENERATION
        shutil.copytree(generation_folder(index, 1), folder)
        write_manifest(folder, replace(read_manifest(folder), generation=number))
        publish_generation(index, folder, number)


@dataclass(frozen=True, kw_only=True)
class DeadlyPlan(WorkerPlan):
    """Of workers that end by a fault of native code when they open generation 2.

    Attributes:
        damage: a file; they end for as long as it is there.
    """

    damage: Path

    def make(self, *arguments: Any) -> Worker:
        """Make the worker."""
        opened, damage = FilesSource.open, self.damage

        def open_or_end(
            source: FilesSource, checkpoint: Any = None, generation: int | None = None
        ) -> SearchIndex:
            if damage.exists() and (generation or source.live_number()) == 2:
                signal.raise_signal(signal.SIGSEGV)
            return opened(source, checkpoint, generation)

        FilesSource.open = open_or_end  # type: ignore[method-assign]
        return super().make(*arguments)


async def test_a_generation_that_ends_who_opens_it_is_refused_and_tried_aside(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_workers, "_MISSING_S", _LONG_S)
    monkeypatch.setattr(crashing_generations, "_FIRST_RETRY_S", 1.0)
    monkeypatch.setattr(crashing_generations, "_LONGEST_RETRY_S", 1.0)
    damage = tmp_path / "damage"
    damage.touch()
    settings = ServiceSettings(workers=2, query_precision="float32")
    plan = DeadlyPlan(index=index, settings=settings, damage=damage)
    metrics = Metrics()
    workers = ProcessWorkers(plan, metrics)
    try:
        await workers.start()
        assert workers.health().generation == 1
        await asyncio.to_thread(publish_copy, index, 2)
        await until(lambda: workers.health().ready and workers.health().refused is not None)
        health = workers.health()
        assert health.generation == 1
        assert "000002: a process died while opening it (SIGSEGV)" in (health.refused or "")
        assert (await workers.search(search())).generation == 1
        with pytest.raises(GenerationRefusedError):
            await workers.call(AddItems("texts", (TextItem(id="new", text="a dog"),), "error"))
        # It is tried again and again, and no worker ends by that.
        await asyncio.sleep(4)
        assert workers.health() == health

        damage.unlink()  # the files are put right
        await until(lambda: workers.health().generation == 2 and workers.health().ready)
        assert workers.health().refused is None
        assert workers.health().pids == health.pids
        await workers.call(AddItems("texts", (TextItem(id="new", text="a dog"),), "error"))
    finally:
        await workers.stop()


async def test_a_service_that_starts_with_a_deadly_generation_answers_that_none_is_there(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_workers, "_MISSING_S", _LONG_S)
    damage = tmp_path / "damage"
    damage.touch()
    publish_copy(index, 2)
    settings = ServiceSettings(workers=2, query_precision="float32")
    plan = DeadlyPlan(index=index, settings=settings, damage=damage)
    prepare_processes(index)
    assert await asyncio.to_thread(try_in_process, plan) == "SIGSEGV"
    workers = ProcessWorkers(plan, Metrics())
    try:
        await workers.start()
        await until(lambda: workers.health().alive == 2)
        assert (workers.health().generation, workers.health().ready) == (None, False)
        assert "SIGSEGV" in (workers.health().refused or "")
        with pytest.raises(IndexNotReadyError, match="damaged"):
            await workers.search(search())
        await asyncio.to_thread(rollback_index, index, 1)
        await until(lambda: workers.health().ready)
        assert (await workers.search(search())).generation == 1
    finally:
        await workers.stop()
    damage.unlink()
    assert await asyncio.to_thread(try_in_process, plan) == "exit status 0"


async def test_a_generation_at_which_workers_end_again_and_again_gives_way_to_the_one_before(
    start: Start, index: Path
) -> None:
    async with start(workers=2) as workers:
        with pytest.raises(WorkerDiedError):  # there is none before: nothing could be better
            await workers.call(EndWorker(signal.SIGSEGV))
        await until(lambda: workers.health().ready)
        await asyncio.to_thread(publish_copy, index, 2)
        await until(lambda: workers.health().generation == 2)
        await workers.call(AddItems("texts", (TextItem(id="new", text="a dog"),), "error"))
        for _ in range(3):
            await until(lambda: workers.health().ready and workers.health().generation == 2)
            await workers.call(DescribeIndex())
            with pytest.raises(WorkerDiedError):
                await workers.call(EndWorker(signal.SIGSEGV))
        await until(lambda: workers.health().ready and workers.health().generation == 1)
        assert "3 processes died while searching it" in (workers.health().refused or "")
        assert (await workers.search(search())).generation == 1
        with pytest.raises(GenerationRefusedError):
            await workers.call(AddItems("texts", (TextItem(id="more", text="a dog"),), "error"))
        await asyncio.to_thread(publish_copy, index, 3)
        await until(lambda: workers.health().generation == 3 and workers.health().refused is None)


@dataclass(frozen=True)
class ReturnDeep(Job[object]):
    """Returns what is too deep to be sent back, and may be too deep to be sent at all."""

    content: object

    def run(self, worker: Worker) -> object:
        """Return lists in lists."""
        del worker
        result: list[object] = []
        for _ in range(10_000):
            result = [result]
        return result


@dataclass(frozen=True)
class EndWorker(Job[None]):
    """Ends the process that does it.

    Attributes:
        by: a signal; without a word, as when memory is short, or by a fault of native code.
    """

    by: signal.Signals = signal.SIGKILL

    def run(self, worker: Worker) -> None:
        """End."""
        del worker
        signal.raise_signal(self.by)


@pytest.mark.cluster
async def test_workers_start_while_the_engine_is_away(index: Path, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    shutil.copytree(index / "model", folder / "model")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    nobody = EngineLocation(url=f"http://127.0.0.1:{port}", name="photos")
    write_location(folder, nobody)
    settings = ServiceSettings(workers=2, engine_timeout_s=0.2)
    workers = ProcessWorkers(WorkerPlan(index=folder, settings=settings), Metrics())
    try:
        await workers.start()
        health = workers.health()
        assert (health.alive, health.engine, health.ready) == (2, "unavailable", False)
        with pytest.raises(EngineUnavailableError):
            await workers.search(search())
        with pytest.raises(EngineUnavailableError):
            await workers.call(GetItem("images", "plain"))
    finally:
        await workers.stop()


@dataclass(frozen=True)
class WaitUntilWithdrawn(Job[None]):
    """Ends when nobody waits for it, and says so in a file."""

    folder: Path

    def run(self, worker: Worker) -> None:  # noqa: ARG002
        (self.folder / "begun").touch()
        end_s = time.monotonic() + _LONG_S
        while time.monotonic() < end_s:
            try:
                check_wanted()
            except WithdrawnError:
                (self.folder / "withdrawn").touch()
                raise
            time.sleep(0.01)


async def test_a_job_that_has_begun_hears_that_nobody_waits_for_it(
    start: Start, tmp_path: Path
) -> None:
    async with start(workers=1) as workers:
        job = asyncio.create_task(workers.call(WaitUntilWithdrawn(tmp_path)))
        await until((tmp_path / "begun").exists)
        job.cancel()
        await until((tmp_path / "withdrawn").exists)
        assert len(ids(await workers.search(search()))) == 6
