"""What batches are expected to take."""

from __future__ import annotations

import pytest

from aladin_service.work.batch_times import BatchTimes


def observe(times: BatchTimes, size: int, seconds: float, *, alone: bool = False) -> None:
    times.observe(size, seconds, alone=alone, cached=False)


def test_nothing_is_expected_of_the_first_batch() -> None:
    times = BatchTimes()
    assert times.expect(8) == 0.0
    assert times.largest(0.1, 16) == 16
    assert times.lone_s == 0.0


def test_sizes_and_times_that_vary_together_give_the_line() -> None:
    times = BatchTimes()
    for _ in range(30):
        for size in (1, 4, 16, 8):
            observe(times, size, 0.010 + 0.002 * size)
    for size in (1, 2, 12, 32):
        assert times.expect(size) == pytest.approx(0.010 + 0.002 * size, rel=0.03)
    assert times.largest(0.0305, 32) == 10
    assert times.largest(0.0305, 8) == 8
    assert times.largest(0.005, 32) == 1


def test_one_size_alone_gives_times_in_proportion() -> None:
    times = BatchTimes()
    for _ in range(30):
        observe(times, 8, 0.080)
    assert times.expect(8) == pytest.approx(0.080)
    assert times.expect(16) == pytest.approx(0.160)
    assert times.expect(4) == pytest.approx(0.040)


def test_a_slope_that_was_measured_is_kept_for_a_while() -> None:
    times = BatchTimes()
    for _ in range(10):
        for size in (2, 16):
            observe(times, size, 0.030 + 0.002 * size)
    for _ in range(5):
        observe(times, 8, 0.046)
    assert times.expect(16) == pytest.approx(0.062, rel=0.03)


def test_a_larger_batch_is_never_expected_to_take_less_time() -> None:
    times = BatchTimes()
    for size, seconds in ((1, 0.050), (8, 0.010), (1, 0.060), (8, 0.010)):
        observe(times, size, seconds)
    assert times.expect(8) == times.expect(1)
    assert times.largest(1.0, 16) == 16
    assert times.largest(0.001, 16) == 1


def test_a_slower_machine_is_believed_after_some_batches() -> None:
    times = BatchTimes()
    for size in (2, 8) * 10:
        observe(times, size, 0.010 * size)
    for size in (2, 8) * 10:
        observe(times, size, 0.030 * size)
    assert times.expect(8) == pytest.approx(0.240, rel=0.05)


def test_times_that_vary_are_expected_to_be_longer_than_their_average() -> None:
    times = BatchTimes()
    for seconds in (0.050, 0.150) * 20:
        observe(times, 4, seconds)
    assert 0.140 < times.expect(4) < 0.170


def test_a_single_slow_batch_counts_as_one_of_four_times_the_expected_length() -> None:
    slow, four = BatchTimes(), BatchTimes()
    for times in (slow, four):
        for _ in range(20):
            observe(times, 4, 0.100)
    observe(slow, 4, 60.0)
    observe(four, 4, 0.400)
    assert slow.expect(4) == pytest.approx(four.expect(4))
    lone = BatchTimes()
    for seconds in (0.010, 60.0):
        observe(lone, 1, seconds, alone=True)
    assert lone.lone_s == pytest.approx(0.016)


def test_only_a_query_by_itself_raises_the_time_of_a_lone_query() -> None:
    times = BatchTimes()
    observe(times, 8, 0.080)
    assert times.lone_s == 0.080  # the best that is known
    observe(times, 1, 0.020)
    assert times.lone_s == 0.020
    observe(times, 1, 0.010, alone=True)
    assert times.lone_s == 0.010
    observe(times, 1, 0.015, alone=True)
    assert times.lone_s == pytest.approx(0.011)
    for _ in range(20):
        observe(times, 1, 0.004)  # chance, beside others
        observe(times, 8, 0.500)
    assert times.lone_s == pytest.approx(0.011)
    observe(times, 2, 0.008)  # more than a lone query takes
    assert times.lone_s == 0.008


def test_remembered_encodings_tell_nothing_of_a_lone_query() -> None:
    times = BatchTimes()
    observe(times, 1, 0.010, alone=True)
    for _ in range(60):
        times.observe(1, 0.001, alone=True, cached=True)
    assert times.lone_s == 0.010
    assert times.expect(1) == pytest.approx(0.001, rel=0.05)
    observe(times, 8, 0.080)  # eighty times as long as expected, and no faster than a lone query
    assert times.lone_s == 0.010
