"""Times of a quiet machine count what is computed, not what is waited for."""

import time

from benchmarks.lib.measuring import quiet_median_s, quiet_time


def test_waiting_is_not_counted_and_computing_is() -> None:
    with quiet_time() as slept:
        time.sleep(0.2)
    assert slept.seconds < 0.1
    assert quiet_median_s(lambda _: time.sleep(0.02), 3) < 0.01
    with quiet_time() as computed:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
    assert computed.seconds >= 0.05
