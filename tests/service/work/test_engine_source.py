"""An index in an engine: what is opened, what is refused, and what happens while it is away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aladin_index.encode.source_items import TextItem
from aladin_index.search.options import SearchOptions
from aladin_network.errors import (
    AladinError,
    EngineError,
    EngineUnavailableError,
    GenerationRefusedError,
    IndexNotReadyError,
)
from aladin_network.types import Target
from aladin_service.search.job import TextQuery
from aladin_service.work import sources
from aladin_service.work.health import EngineStatus, LiveState
from aladin_service.work.hot_swap import LiveIndex
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer
from tests.service.engine_world import EngineWorld, SlowEngine
from tests.service.searching import search_for

_LONG_S = 20.0


@pytest.fixture
def live(world: EngineWorld) -> Iterator[LiveIndex]:
    with closing(world.live_index()) as live:
        yield live


def hits(live: LiveIndex, target: Target = "images") -> int:
    answer = search_for(
        live.searcher(), TextQuery("a dog"), target, SearchOptions(k=100, rerank=False)
    )
    return len(answer.hits)


def until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + _LONG_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


def test_a_new_generation_is_opened_without_a_request_and_a_search_keeps_its_own(
    world: EngineWorld, live: LiveIndex, index_folder: Path
) -> None:
    live.open()
    assert live.state == LiveState(1, engine="up")
    assert (hits(live), hits(live, "texts")) == (6, 12)
    running = live.searcher()
    assert world.push(index_folder) == 2
    until(lambda: live.state.generation == 2)
    assert search_for(running, TextQuery("a dog"), "images", SearchOptions()).generation == 1
    answer = search_for(live.searcher(), TextQuery("a dog"), "images", SearchOptions())
    assert answer.generation == 2


def test_requests_search_without_polling_and_their_calls_are_reported(world: EngineWorld) -> None:
    reported: list[str] = []
    report = lambda call: reported.append(call.operation)  # noqa: E731
    with closing(world.live_index(poll_s=1e6, on_call=report)) as live:
        live.open()
        world.server.calls.clear()
        reported.clear()
        world.server.live = 77  # which only a poll would find out
        for _ in range(3):
            live.refresh()
            assert hits(live) == 6
        assert set(world.server.calls) == {"search"}
        assert reported == ["search"] * 3


@pytest.mark.parametrize(
    ("broken", "repaired", "error", "engine"),
    [
        ({"down": {"*"}}, {"down": set[str]()}, EngineUnavailableError, "unavailable"),
        ({"live": None}, {"live": 1}, IndexNotReadyError, "up"),
    ],
    ids=["before the engine", "before there is a generation"],
)
def test_the_service_starts_before(
    world: EngineWorld,
    live: LiveIndex,
    broken: dict[str, Any],
    repaired: dict[str, Any],
    error: type[Exception],
    engine: EngineStatus,
) -> None:
    vars(world.server).update(broken)
    with pytest.raises(error):
        live.open()
    assert live.state == LiveState(None, engine=engine)
    with pytest.raises(error):
        live.searcher()
    vars(world.server).update(repaired)
    until(lambda: live.state == LiveState(1, engine="up"))
    assert hits(live) == 6


def test_the_service_starts_before_the_push(tmp_path: Path, index_folder: Path) -> None:
    late = EngineWorld(tmp_path / "late", MemoryServer())
    with closing(late.live_index()) as live:
        with pytest.raises(IndexNotReadyError, match="no index here"):
            live.open()
        assert live.is_current  # nobody tries before there is something
        assert live.state == LiveState(None)
        late.push(index_folder)
        assert not live.is_current
        live.refresh()
        assert live.state == LiveState(1, engine="up")
        assert hits(live) == 6


def test_an_unavailable_engine_is_noticed_and_served_again_once_it_answers_searches(
    world: EngineWorld, live: LiveIndex
) -> None:
    live.open()
    world.server.down = {"*"}
    until(lambda: live.state.engine == "unavailable")
    assert live.state.generation == 1  # it will be there again
    calls = world.server.calls.count("search")
    for ask in (live.searcher, live.changer):
        with pytest.raises(EngineUnavailableError):
            ask()
    assert world.server.calls.count("search") == calls
    world.server.down = {"search"}  # not its health checks
    looks = world.server.calls.count("live_generation")
    until(lambda: world.server.calls.count("live_generation") > looks + 3)
    assert live.state.engine == "unavailable"
    world.server.down = set()
    until(lambda: live.state == LiveState(1, engine="up"))
    assert hits(live) == 6


@pytest.mark.parametrize("hangs", [False, True])
def test_two_failed_searches_in_a_row_make_the_engine_unavailable(
    world: EngineWorld, hangs: bool
) -> None:
    client = SlowEngine(world.server, timeout_s=0.05)
    with closing(world.live_index(client, poll_s=1e6)) as live:
        live.open()
        searcher = live.searcher()
        if hangs:
            client.hangs.set()
        else:
            world.server.down = {"search"}
        asked = world.server.calls.count("search")
        for number in range(10):
            with pytest.raises(EngineUnavailableError):
                search_for(searcher, TextQuery("a dog"), "images", SearchOptions())
            expected = "unavailable" if number else "up"
            assert live.state.engine == expected
        # Of a batch that had begun, the rest ask no more.
        assert client.hung + world.server.calls.count("search") - asked == 2


def test_a_generation_that_cannot_be_searched_is_refused(
    world: EngineWorld, live: LiveIndex, index_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live.open()
    pushed = EngineWorld(world.folder, world.server)
    assert pushed.push(index_folder) == 2
    until(lambda: live.state.generation == 2)
    world.server.records[3] = world.server.records[2] | {"manifest.json": b"{}"}
    world.server.live = 3
    until(lambda: live.state.refused_generation == 3)
    state = live.state
    assert (state.generation, state.engine) == (2, "up")
    assert hits(live) == 6
    with pytest.raises(GenerationRefusedError):
        live.changer()
    # The reason is logged once the state says so.
    until(lambda: any(record.levelno > logging.INFO for record in caplog.records))
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == [
        logging.ERROR
    ]
    world.server.live = 2
    until(lambda: live.state == LiveState(2, engine="up"))


def test_an_engine_that_refuses_the_first_poll_fails_the_start(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MemoryEngine(world.server)

    def refuse() -> None:
        raise EngineError("memory", "wrong token")

    monkeypatch.setattr(client, "check_health", refuse)
    with closing(world.live_index(client)) as live:
        with pytest.raises(EngineError, match="wrong token"):
            live.open()
        assert live.state.engine == "unavailable"


def test_a_damaged_engine_file_is_reported(world: EngineWorld, live: LiveIndex) -> None:
    whole = (world.folder / "engine.json").read_bytes()
    (world.folder / "engine.json").write_bytes(whole[:20])
    with pytest.raises(AladinError, match=r"engine\.json"):
        live.open()
    with pytest.raises(IndexNotReadyError, match="damaged"):
        live.searcher()


def test_changes_go_to_the_engine(live: LiveIndex) -> None:
    live.open()
    changer = live.changer()
    added = changer.add("texts", [TextItem(id="new", text="a yellow bird")], "error")
    assert (added.report.generation, added.report.ids["added"]) == (1, ["new"])
    assert hits(live, "texts") == 13
    assert live.searcher().find_item("new")[0].text == "a yellow bird"
    changer.delete("texts", "new")
    assert live.searcher().index.collection("texts").count == 12


def test_a_poll_that_ends_after_the_service_opens_nothing(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_END_S", 0.01)
    client = MemoryEngine(world.server)
    live = world.live_index(client)
    live.open()
    looks, ends = threading.Event(), threading.Event()

    def hang() -> None:
        looks.set()
        ends.wait(_LONG_S)

    monkeypatch.setattr(client, "check_health", hang)
    assert looks.wait(_LONG_S)
    (thread,) = [each for each in threading.enumerate() if each.name == "engine-poll"]
    live.close()
    world.server.live = 2
    ends.set()
    thread.join(_LONG_S)
    assert live.state == LiveState(None)


def test_its_thread_and_its_connection_end_with_it(world: EngineWorld) -> None:
    def polling() -> int:
        return sum(thread.name == "engine-poll" for thread in threading.enumerate())

    client, before = MemoryEngine(world.server), polling()
    live = world.live_index(client)
    live.open()
    assert polling() == before + 1
    live.close()
    assert (client.closed, polling()) == (True, before)
    with pytest.raises(IndexNotReadyError):
        live.searcher()
