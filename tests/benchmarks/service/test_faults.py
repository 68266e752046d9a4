"""Workers killed under load, and a full disk, in short."""

from __future__ import annotations

import pytest

from benchmarks.service.faults import kill_workers
from benchmarks.service.full_disk import fill_and_add


@pytest.mark.slow
def test_a_kill_is_reported_and_fails_only_running_requests() -> None:
    figures = kill_workers(1)
    assert (figures["kills"], figures["reported"]) == (1, 1)
    assert (figures["unanswered"], figures["failed_waiting"]) == (0, 0)
    assert figures["answered"] > 0


@pytest.mark.slow
def test_a_full_disk_loses_nothing() -> None:
    figures = fill_and_add()
    assert figures["codes"] == ["507 cannot_write"]
    assert figures["acknowledged"] > 0
    assert figures["added_again"] == figures["rejected"] == 5
    assert (figures["searches_failed"], figures["lost"], figures["half"]) == (0, 0, 0)
