"""When a generation is to blame for the end of workers, and when it is tried again."""

from __future__ import annotations

import pytest

from aladin_service.work import crashing_generations
from aladin_service.work.crashing_generations import Attempt, CrashingGenerations, is_fault
from tests.service.work.published import Clock

FIRST, SECOND = Attempt((1, 10), 1), Attempt((1, 11), 2)


@pytest.fixture(autouse=True)
def patched_clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crashing_generations, "time", clock)


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS"])
def test_one_fault_while_it_is_opened_is_enough(how: str) -> None:
    crashing = CrashingGenerations()
    assert is_fault(how)
    ends = [crashing.ended_opening(each, how) for each in (SECOND, SECOND, FIRST)]
    assert ends == [True, False, True]  # the second is known by then
    reason = f"a process died while opening it ({how})"
    assert crashing.reasons == {SECOND: reason, FIRST: reason}
    assert not crashing.retry_is_due
    assert crashing.opened(SECOND)  # another worker can
    assert set(crashing.reasons) == {FIRST}


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "exit status 1", "exit status 0"])
def test_an_end_that_may_come_from_elsewhere_counts_when_it_comes_twice_in_a_row(how: str) -> None:
    crashing = CrashingGenerations()
    assert not is_fault(how)
    assert [crashing.ended_opening(each, how) for each in (SECOND, FIRST)] == [False, False]
    assert not crashing.opened(SECOND)  # so it was not its fault
    assert [crashing.ended_opening(SECOND, how) for _ in range(2)] == [False, True]
    assert set(crashing.reasons) == {SECOND}


def test_three_faults_within_a_minute_while_it_is_searched(clock: Clock) -> None:
    crashing = CrashingGenerations()
    for second in (1000.0, 1031.0, 1060.1, 1091.1):  # three of them always take longer
        clock.now_s = second
        assert not crashing.ended_searching(SECOND, "SIGSEGV")
        assert not crashing.ended_searching(FIRST, "SIGKILL")
    clock.now_s = 1120.1
    assert crashing.ended_searching(SECOND, "SIGBUS")
    assert crashing.reasons == {SECOND: "3 processes died while searching it (last: SIGBUS)"}
    assert not crashing.ended_searching(SECOND, "SIGBUS")
    # That it can be opened is nothing new, so no trial is made of it.
    clock.now_s = 1e9
    assert not crashing.retry_is_due
    assert not crashing.opened(SECOND)
    crashing.retried("exit status 0")
    assert set(crashing.reasons) == {SECOND}


def test_a_trial_is_due_less_and_less_often_until_it_succeeds(clock: Clock) -> None:
    crashing = CrashingGenerations()
    assert not crashing.retry_is_due
    crashing.ended_opening(SECOND, "SIGSEGV")
    waits: list[float] = []
    for how in ["SIGSEGV", "SIGKILL", "never started", "SIGBUS"] * 2:
        before = clock.now_s
        while not crashing.retry_is_due:
            clock.now_s += 1
        waits.append(clock.now_s - before)
        assert not crashing.retried(how)
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]
    assert not crashing.retry_is_due
    clock.now_s += 600
    # It is refused in the ordinary way now, or sound: either way workers may open it.
    assert crashing.retried("exit status 1")
    assert crashing.reasons == {}
    assert not crashing.retry_is_due
    assert not crashing.ended_opening(SECOND, "SIGKILL")  # counted from the start
    assert crashing.ended_opening(SECOND, "SIGSEGV")
    clock.now_s += 10
    assert crashing.retry_is_due
