from pathlib import Path

from benchmarks.search.query_work import measure
from benchmarks.search.scale import build


def test_the_work_of_a_query_is_counted(tmp_path: Path) -> None:
    build(tmp_path / "index", 300, "int8", "auto", None)
    figures = measure(tmp_path / "index", 300, queries=16, rounds=1, round_s=0.02)
    assert figures["python_calls"] > 20
    assert figures["native_calls"] > 20
    assert figures["allocated"] > 0
    steps = figures["steps"]
    assert sum(steps[name] for name in steps if name != "total") == steps["total"]
    assert figures["batch"]["1"] == 1
    for size in ("1", "8", "16"):
        one, two = figures["per_s"][size]
        assert figures["two_over_one"][size] == two / one > 0
        assert min(figures["cpu_us"][size]) > 0
