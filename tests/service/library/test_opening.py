"""Opening a library: refused starts, and the end of the second process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aladin_service.library.opening as opening
from aladin_index.format.skipped import read_follow_record
from aladin_network.errors import ConfigError
from aladin_service.library.keeper import KeepPlan
from aladin_service.library.libraries import (
    Library,
    LibraryInUseError,
    all_libraries,
    library_of,
)

_PLAN: KeepPlan = None  # type: ignore[assignment]  # not read by what stands in for the process


def wait_long(*_: object) -> None:
    time.sleep(60)


def fail(plan: object, show: object, on_pass: object, failures: object, logs: object) -> None:
    del plan, show, on_pass, failures, logs
    os._exit(3)


@pytest.fixture
def run_instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Have the second process run a function of this module; it is forked."""

    def replace(function: Callable[..., None]) -> None:
        monkeypatch.setattr(opening, "_keep", function)
        fork = multiprocessing.get_context("fork")

        def get_context(method: str) -> object:
            del method
            return fork

        monkeypatch.setattr(multiprocessing, "get_context", get_context)

    return replace


def unused(*_: object) -> Any:
    raise AssertionError


def test_an_end_that_was_asked_for_is_no_failure(
    run_instead: Callable[[Callable[..., None]], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_instead(wait_long)
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    with opening._keeper(_PLAN, unused, unused) as keeper:  # pyright: ignore
        watching = threading.Thread(target=keeper.supervise)
        watching.start()
    watching.join(10)
    assert not watching.is_alive()
    assert (raised, caplog.records) == ([], [])


def test_a_process_that_dies_is_started_again_until_it_is_given_up(
    run_instead: Callable[[Callable[..., None]], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    run_instead(fail)
    monkeypatch.setattr(opening, "_PAUSES_S", (0.0, 0.0))
    plan = KeepPlan(index=tmp_path / "index", checkpoint=None, folders=(tmp_path,))
    with (
        caplog.at_level(logging.WARNING),
        opening._keeper(plan, unused, unused) as keeper,  # pyright: ignore
    ):
        keeper.supervise()
    ended = "the process that keeps the index ended with exit status 3"
    assert [record.getMessage() for record in caplog.records] == [
        f"{ended}; it is started again",
        f"{ended}; it is started again",
        f"the index does not follow its folders any more: {ended}",
    ]
    record = read_follow_record(plan.index)  # which the page shows
    assert record is not None and record.stopped == ended


def test_a_killed_process_is_started_again_and_ended_with_the_library(
    run_instead: Callable[[Callable[..., None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_instead(wait_long)
    monkeypatch.setattr(opening, "_PAUSES_S", (0.0,))
    with opening._keeper(_PLAN, unused, unused) as keeper:  # pyright: ignore
        watching = threading.Thread(target=keeper.supervise)
        watching.start()
        [first] = multiprocessing.active_children()
        first.kill()
        until_s = time.monotonic() + 10
        while keeper._process is first and time.monotonic() < until_s:  # pyright: ignore
            time.sleep(0.01)
        [second] = multiprocessing.active_children()
        assert second.pid != first.pid and second.is_alive()
    watching.join(10)
    assert not (watching.is_alive() or multiprocessing.active_children())


def test_a_refused_start_leaves_the_library_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    library = library_of([tmp_path / "photos"], "org/clip", tmp_path / "libraries")

    def open_now(library: Library) -> None:
        """Open a library in a way that must fail before anything is started."""
        shows: dict[str, Any] = dict.fromkeys(("show_progress", "on_pass", "on_address"), unused)
        opening.open_library(library, _PLAN, host="127.0.0.1", port=0, **shows)

    (tmp_path / "libraries").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match="ALADIN_LIBRARIES_DIR names another folder"):
        open_now(library)
    (tmp_path / "libraries").unlink()
    library.save()
    with library.claimed(), pytest.raises(LibraryInUseError):
        open_now(replace(library, exclude=("*.jpg",)))
    assert all_libraries(tmp_path / "libraries") == ([library], {})
