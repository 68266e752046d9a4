"""Which generation answers: what is taken over, what is refused, what becomes of the old one."""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

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
    "damage", ["images/embeddings.npy", "texts/items.sqlite", "texts/ann.faiss"]
)
def test_a_broken_generation_is_refused_and_the_old_one_stays(
    index: Path, live: LiveIndex, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish_copy(index, 2, damage)
    for _ in range(3):
        live.try_to_open()
    state = live.state
    assert (state.generation, state.refused_generation) == (1, 2)
    assert state.refused is not None
    assert Path(damage).name in state.refused
    assert hits(live) == 6
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    # What is added would go to a generation that nobody sees.
    with pytest.raises(GenerationRefusedError):
        live.changer()
    rollback_index(index, 1)
    live.open()
    assert live.state == LiveState(1)
    live.changer()


def test_a_generation_that_is_put_right_is_taken_up(
    index: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_copy(index, 2)
    tokens = generation_folder(index, 2) / "images" / "tokens.npy"
    away = tokens.rename(index / "tokens.npy")
    live.try_to_open()
    assert live.state.refused_generation == 2
    assert live.is_current  # nobody tries again at once
    away.rename(tokens)
    monkeypatch.setattr(hot_swap.time, "monotonic", lambda: 1e12)
    assert not live.is_current
    live.open()
    assert live.state == LiveState(2)


def test_a_generation_is_warmed_up_before_it_answers(index: Path) -> None:
    warmed: list[tuple[int, int | None]] = []
    live = LiveIndex(
        index,
        Opening(),
        warm_up=lambda opened: warmed.append((opened.generation, live.state.generation)),
    )
    live.open()
    publish_copy(index, 2)
    live.open()
    assert live.state == LiveState(2)
    assert warmed == [(1, None), (2, 1)]
    live.close()


def test_a_generation_is_refused_whose_network_cannot_encode(index: Path) -> None:
    def fail(_: SearchBackend) -> None:
        raise CheckpointError("text.onnx: cannot be loaded")

    live = LiveIndex(index, Opening(), warm_up=fail)
    with pytest.raises(CheckpointError):
        live.open()
    assert live.state.refused == "text.onnx: cannot be loaded"
    assert generations_mapped(index) == set()


def test_a_later_worker_serves_the_generation_of_the_others(index: Path) -> None:
    publish_copy(index, 2, "images/embeddings.npy")
    alone = LiveIndex(index, Opening())
    with pytest.raises(IndexCorruptError):
        alone.open()
    assert alone.state.generation is None
    with pytest.raises(IndexNotReadyError, match="damaged"):
        alone.searcher()
    live = LiveIndex(index, Opening(fallback=1))
    live.try_to_open()
    assert (live.state.generation, live.state.refused_generation) == (1, 2)
    assert hits(live) == 6
    rollback_index(index, 1)
    live.open()
    assert live.state == LiveState(1)
    live.close()


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
    writer = ChangesWriter(index, read_manifest(generation_folder(index, 1)).model.id)
    writer.delete("images", ["plain", "bike 2?"])
    writer.close()
    live = LiveIndex(index, Opening())
    live.open()
    assert hits(live) == 4
    live.close()


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("std::bad_alloc"), KeyError("a")])
def test_a_generation_that_fails_in_an_unforeseen_way_is_refused_and_tried_again(
    index: Path,
    live: LiveIndex,
    fault: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish_copy(index, 2)
    opened = FilesSource.open
    opens: list[int | None] = []

    def fail(self: FilesSource, *_: object) -> object:
        opens.append(self.live_number())
        raise fault

    monkeypatch.setattr(FilesSource, "open", fail)
    for _ in range(3):
        live.refresh()  # as before each request: none is answered with the fault
    assert opens == [2]
    state = live.state
    assert (state.generation, state.refused_generation) == (1, 2)
    assert type(fault).__name__ in (state.refused or "")
    assert hits(live) == 6
    with pytest.raises(GenerationRefusedError):
        live.changer()
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None

    monkeypatch.setattr(FilesSource, "open", opened)
    monkeypatch.setattr(hot_swap.time, "monotonic", lambda: 1e12)
    live.refresh()
    assert live.state == LiveState(2)
    live.changer()


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


def test_a_fallback_that_fails_in_an_unforeseen_way_leaves_nothing(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise MemoryError

    monkeypatch.setattr(FilesSource, "open", fail)
    live = LiveIndex(index, Opening(fallback=1))
    live.refresh()
    assert live.state == LiveState(None, 1, "MemoryError")
    with pytest.raises(IndexNotReadyError, match="damaged"):
        live.searcher()
    live.close()


def replace_folder(index: Path, backup: Path, *, removed: bool) -> None:
    """Put a copy of a backup in the place of an index, as one who restores it does."""
    copy = Path(shutil.copytree(backup, index.with_name("copy")))
    if removed:
        shutil.rmtree(index)
    else:
        index.rename(index.with_name("broken"))
    copy.rename(index)


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
        replace_folder(index, backup, removed=removed)
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
