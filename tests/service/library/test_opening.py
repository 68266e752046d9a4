"""The second process of a library: its end is reported, unless it was asked for."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable

import pytest

import aladin_service.library.opening as opening
from aladin_service.library.keeper import KeepPlan

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


def unused(*_: object) -> None:
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
        watching = threading.Thread(target=keeper.log_failure)
        watching.start()
    watching.join(10)
    assert not watching.is_alive()
    assert (raised, caplog.records) == ([], [])


def test_a_process_that_dies_is_reported(
    run_instead: Callable[[Callable[..., None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    run_instead(fail)
    with (
        caplog.at_level(logging.ERROR),
        opening._keeper(_PLAN, unused, unused) as keeper,  # pyright: ignore
    ):
        keeper.log_failure()
    [record] = caplog.records
    assert "does not follow its folders any more" in record.getMessage()
    assert "exit status 3" in record.getMessage()
