"""Which generation answers: what is taken over, what is refused, what becomes of the old one."""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import TextItem
from aladin_index.format.disk import sole_use
from aladin_index.format.layout import (
    CURRENT,
    generation_folder,
    set_live_generation,
)
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.published import rollback_index
from aladin_index.search.collection import SearchBackend
from aladin_index.search.options import SearchOptions
from aladin_network.errors import (
    CheckpointError,
    GenerationRefusedError,
    IndexCorruptError,
    IndexNotReadyError,
    UnknownItemError,
)
from aladin_service.search.job import TextQuery
from aladin_service.settings import ServiceSettings
from aladin_service.work import hot_swap
from aladin_service.work.health import LiveState
from aladin_service.work.hot_swap import LiveIndex, Opening
from aladin_service.work.jobs import AddItems, GetItem
from aladin_service.work.sources import FilesSource
from aladin_service.work.worker import Worker, WorkerPlan
from tests.service.searching import search_for
from tests.service.work.published import Clock, publish_copy


@pytest.fixture
def live(index: Path) -> Iterator[LiveIndex]:
    """Follows the index, whose first generation is open."""
    with closing(LiveIndex(index, Opening())) as live:
        live.open()
        yield live


def generations_mapped(index: Path) -> set[str]:
    """Return the generations of which this process has files in its memory."""
    folder = str(index.resolve() / "generations") + "/"
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {line.split(folder)[1].split("/")[0] for line in lines if folder in line}


def hits(live: LiveIndex) -> int:
    options = SearchOptions(k=100)
    return len(search_for(live.searcher(), TextQuery("a dog"), "images", options).hits)


def test_the_old_generation_is_closed_when_its_last_query_ends(index: Path) -> None:
    live = LiveIndex(index, Opening())
    live.open()
    running = live.searcher()  # a query keeps it
    assert hits(live) == 6
    publish_copy(index, 2)
    live.open()
    assert live.state == LiveState(2)
    assert search_for(running, TextQuery("a dog"), "images", SearchOptions()).generation == 1
    assert generations_mapped(index) == {"000001", "000002"}
    with sole_use(index, 1) as alone:
        assert not alone
    del running
    gc.collect()
    assert generations_mapped(index) == {"000002"}
    with sole_use(index, 1) as alone:
        assert alone
    live.close()
    gc.collect()
    assert generations_mapped(index) == set()


@pytest.mark.parametrize(
    "fault",
    [
        "images/embeddings.npy",
        "texts/items.sqlite",
        "texts/ann.faiss",
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        KeyError("a"),
    ],
    ids=str,
)
def test_a_generation_that_cannot_be_opened_is_refused_until_it_is_put_right(
    index: Path,
    live: LiveIndex,
    fault: str | Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage = fault if isinstance(fault, str) else None
    publish_copy(index, 2, damage)
    opened, opens = FilesSource.open, list[int | None]()

    def try_to_open(self: FilesSource, *arguments: Any) -> Any:
        opens.append(self.live_number())
        if isinstance(fault, Exception):
            raise fault
        return opened(self, *arguments)

    monkeypatch.setattr(FilesSource, "open", try_to_open)
    for _ in range(3):
        live.refresh()  # as before each request: none is answered with the fault
    assert opens == [2]
    assert live.is_current  # nobody tries again at once
    state = live.state
    assert (state.generation, state.refused_generation) == (1, 2)
    assert (Path(damage).name if damage else type(fault).__name__) in (state.refused or "")
    assert hits(live) == 6
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert (caplog.records[0].exc_info is None) is isinstance(fault, str)
    with pytest.raises(GenerationRefusedError):  # what is added would be seen by nobody
        live.changer()

    if damage is not None:
        shutil.copy(generation_folder(index, 1) / damage, generation_folder(index, 2) / damage)
    monkeypatch.setattr(FilesSource, "open", opened)
    monkeypatch.setattr(hot_swap.time, "monotonic", lambda: 1e12)
    assert not live.is_current
    live.refresh()
    assert live.state == LiveState(2)
    live.changer()


def test_a_generation_is_warmed_up_before_it_answers_and_refused_if_it_cannot_encode(
    index: Path,
) -> None:
    warmed: list[tuple[int, int | None]] = []

    def warm_up(opened: SearchBackend) -> None:
        warmed.append((opened.generation, live.state.generation))
        if opened.generation == 3:
            raise CheckpointError("text.onnx: cannot be loaded")

    with closing(LiveIndex(index, Opening(), warm_up=warm_up)) as live:
        live.open()
        publish_copy(index, 2)
        live.open()
        assert live.state == LiveState(2)
        publish_copy(index, 3)
        with pytest.raises(CheckpointError):
            live.open()
        assert live.state == LiveState(2, 3, "text.onnx: cannot be loaded")
        assert warmed == [(1, None), (2, 1), (3, 2)]
        assert generations_mapped(index) == {"000002"}


def test_a_worker_that_starts_with_a_broken_generation_serves_that_of_the_others(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_copy(index, 2, "images/embeddings.npy")
    alone = LiveIndex(index, Opening())
    with pytest.raises(IndexCorruptError):
        alone.open()
    assert alone.state.generation is None
    with pytest.raises(IndexNotReadyError, match="damaged"):
        alone.searcher()
    with closing(LiveIndex(index, Opening(fallback=1))) as live:
        live.try_to_open()
        assert (live.state.generation, live.state.refused_generation) == (1, 2)
        assert hits(live) == 6
        rollback_index(index, 1)
        live.open()
        assert live.state == LiveState(1)

    def fail(*_: object, **__: object) -> object:
        raise MemoryError

    monkeypatch.setattr(FilesSource, "open", fail)  # of the fallback, too
    with closing(LiveIndex(index, Opening(fallback=1))) as live:
        live.refresh()
        assert live.state == LiveState(None, 1, "MemoryError")
        with pytest.raises(IndexNotReadyError, match="damaged"):
            live.searcher()


def test_an_unreadable_current_is_refused(index: Path, live: LiveIndex) -> None:
    (index / CURRENT).unlink()
    (index / CURRENT).write_text("7 of 9\n")
    live.try_to_open()
    assert live.state.generation == 1
    assert live.state.refused_generation is None
    assert "7 of 9" in (live.state.refused or "")
    set_live_generation(index, 1)
    live.open()
    assert live.state == LiveState(1)


def test_a_generation_with_deletions_is_sound(index: Path) -> None:
    model_id = read_manifest(generation_folder(index, 1)).model.id
    with closing(ChangesWriter(index, model_id)) as writer:
        writer.delete("images", ["plain", "bike 2?"])
    with closing(LiveIndex(index, Opening())) as live:
        live.open()
        assert hits(live) == 4


def test_a_refused_generation_is_tried_again_after_longer_and_longer_waits(
    index: Path, live: LiveIndex, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens: list[float] = []
    monkeypatch.setattr(hot_swap, "time", clock)
    publish_copy(index, 2)

    def fail(*_: object) -> object:
        opens.append(clock.now_s)
        raise MemoryError

    monkeypatch.setattr(FilesSource, "open", fail)
    while clock.now_s < 1000 + 200:
        live.refresh()
        clock.now_s += 0.5
    waits = [later - earlier for earlier, later in pairwise(opens)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("removed", [False, True])
def test_a_replaced_folder_is_searched_and_changed(
    index: Path, tmp_path: Path, removed: bool
) -> None:
    settings = ServiceSettings(query_precision="float32")
    with closing(WorkerPlan(index=index, settings=settings).make()) as worker:

        def add(item_id: str) -> None:
            AddItems("texts", (TextItem(id=item_id, text="a red dog"),), "error").run(worker)

        def known() -> set[str]:
            return {each for each in "ab" if _is_known(worker, each)}

        worker.live.open()
        add("a")
        backup = Path(shutil.copytree(index, tmp_path / "backup"))
        assert known() == {"a"}
        searcher = worker.searcher()
        assert worker.searcher() is searcher
        copy = Path(shutil.copytree(backup, index.with_name("copy")))
        shutil.rmtree(index) if removed else index.rename(index.with_name("broken"))
        copy.rename(index)  # as one who restores a backup does
        add("b")
        assert known() == {"a", "b"}
        assert worker.searcher() is not searcher
        del searcher
        gc.collect()
        assert generations_mapped(index) == {"000001"}
    with closing(WorkerPlan(index=index, settings=settings).make()) as worker:  # started anew
        assert known() == {"a", "b"}


def _is_known(worker: Worker, item_id: str) -> bool:
    try:
        GetItem("texts", item_id).run(worker)
    except UnknownItemError:
        return False
    return True


def test_the_same_generation_published_again_is_not_opened_again(
    index: Path, live: LiveIndex
) -> None:
    searcher = live.searcher()
    set_live_generation(index, 1)
    assert not live.is_current
    live.refresh()
    assert live.is_current
    assert live.searcher() is searcher
