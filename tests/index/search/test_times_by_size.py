"""What is expected of work by what was measured."""

from __future__ import annotations

import threading

import pytest

from aladin_index.search.deadline import TimesBySize


def test_nothing_is_expected_of_what_is_not_known() -> None:
    assert TimesBySize().expect(3) == 0.0


def test_sizes_in_between_are_interpolated_and_others_cost_as_the_nearest() -> None:
    times = TimesBySize()
    times.observe(8, 4.0)
    times.observe(2, 2.0)
    assert times.expect(2) == 2.0
    assert times.expect(8) == 4.0
    assert times.expect(5) == pytest.approx(3.0)  # half way
    assert times.expect(16) == pytest.approx(8.0)  # as two of 8
    assert times.expect(1) == pytest.approx(1.0)  # as half of 2
    assert times.expect(0) == 0.0


def test_a_unit_costs_no_more_than_at_a_smaller_size() -> None:
    times = TimesBySize()
    times.observe(1, 1.0)
    times.observe(8, 100.0)  # something else kept the machine busy
    assert times.expect(8) == 8.0
    assert times.expect(2) == 2.0


def test_the_average_follows_a_change_and_not_a_single_measurement() -> None:
    times = TimesBySize()
    for _ in range(10):
        times.observe(1, 1.0)
    times.observe(1, 11.0)
    assert times.expect(1) == pytest.approx(3.0)  # a fifth of the way
    for _ in range(30):
        times.observe(1, 11.0)
    assert times.expect(1) == pytest.approx(11.0, rel=0.01)


def test_a_large_size_is_not_forgotten_while_small_ones_come() -> None:
    times = TimesBySize()
    times.observe(8, 4.0)
    for _ in range(1000):
        times.observe(1, 1.0)
    assert times.expect(8) == 4.0


def test_threads_may_measure_at_the_same_time() -> None:
    times = TimesBySize()

    def measure() -> None:
        for number in range(2000):
            size = 1 + number % 50
            times.observe(size, float(size))
            assert times.expect(size) == pytest.approx(size)

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [times.expect(size) for size in range(1, 51)] == pytest.approx(list(range(1, 51)))
