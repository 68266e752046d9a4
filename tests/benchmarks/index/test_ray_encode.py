import pytest

from benchmarks.index.ray_encode import Clock


class Doomed:
    """Nodes of which one is killed."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def kill(self, number: int) -> None:
        self.killed.append(number)


def test_the_rate_counts_from_when_all_workers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = iter([10.0, 12.0, 13.0, 14.0, 16.0])
    monkeypatch.setattr("benchmarks.index.ray_encode.time.perf_counter", lambda: next(now_s))
    nodes = Doomed()
    clock = Clock(90, 2, nodes)  # type: ignore[arg-type]
    clock.start(None, "photos listed")
    clock.advance(90)
    clock.start(90, "photos")
    clock.advance(10)  # at 10 s
    clock.note(workers=1.0)
    clock.advance(10)  # at 12 s
    clock.note(workers=2.0)  # at 13 s, with 20 photos done
    assert nodes.killed == []
    clock.advance(30)  # at 14 s
    assert nodes.killed == [1]
    clock.note(workers=1.0, lost=1.0)
    clock.advance(40)  # at 16 s
    clock.start(89, "images written")
    clock.advance(89)
    assert clock.work_s() == pytest.approx(3.0 * 90 / 70)
    assert clock.lost == 1
    assert nodes.killed == [1]
