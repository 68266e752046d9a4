import time

import pytest

from aladin_index.encode.read_ahead import StageSeconds


def test_the_time_of_a_stage_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 2.0, 5.0, 6.25])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    seconds = StageSeconds()
    for _ in range(2):
        with seconds.measure("encode"):
            pass
    assert seconds.seconds == {"encode": 3.25}
    assert seconds.notes() == {"encode_s": 3.2}


def test_waiting_is_shared_out_by_what_the_threads_do(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 2.0, 2.0, 3.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    seconds, threads = StageSeconds(), StageSeconds()
    threads.add("read", 1.0)
    threads.add("decode", 3.0)
    with seconds.waiting_for(threads):
        pass
    assert seconds.seconds == {"read": 0.5, "decode": 1.5}
    threads.add("read", 2.0)  # now as much as decoding
    with seconds.waiting_for(threads):
        pass
    assert seconds.seconds == {"read": 1.0, "decode": 2.0}
