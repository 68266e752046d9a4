"""How constants are taken from times: from times that were made of known ones."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from aladin_index.ann.ann_index import training_vectors
from aladin_index.capacity.constants import (
    EncodingConstants,
    Measurements,
    read_constants,
    read_measurements,
)
from aladin_network.config import dump_config
from benchmarks.lib.measuring import quiet_median_s, quiet_time
from benchmarks.search import constants, plan_check
from benchmarks.search.constants import MeasuredSizes, measure
from benchmarks.search.constants_first_stage import BuiltLists, SearchTime, fit_builds, fit_searches

DIM = 256


def test_builds_tell_what_they_are_made_of() -> None:
    costs = np.array([1e-10, 3e-7, 2e-11, 4e-9])

    def built(vectors: int, lists: int) -> BuiltLists:
        sample = min(training_vectors(lists, DIM), vectors)
        work = DIM * np.array([sample * lists, sample, vectors * lists, vectors])
        return BuiltLists(vectors, lists, float(work @ costs), None)

    builds = [built(vectors, lists) for lists in (256, 2048) for vectors in (131_072, 400_000)]
    assert fit_builds(builds, DIM) == pytest.approx(costs, rel=1e-6)


def test_searches_tell_what_they_are_made_of() -> None:
    costs = np.array([1e-5, 3e-7, 4e-11])
    times = [
        SearchTime(
            width, width * length * 128.0, float(np.array([1, width, width * length * 128]) @ costs)
        )
        for length in (200, 400, 800)
        for width in (1, 4, 16, 64)
    ]
    assert fit_searches(times) == pytest.approx(costs, rel=1e-6)


def test_no_cost_is_below_nothing() -> None:
    # Wider searches that take no longer: noise, not a gift.
    times = [SearchTime(1, 1000.0, 2e-5), SearchTime(64, 64_000.0, 1e-5)]
    assert all(cost >= 0 for cost in fit_searches(times))


def test_waiting_is_not_counted() -> None:
    with quiet_time() as slept:
        time.sleep(0.2)
    assert slept.seconds < 0.1
    assert quiet_median_s(lambda _: time.sleep(0.02), 3) < 0.01
    with quiet_time() as computed:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
    assert computed.seconds >= 0.05


def test_what_is_not_measured_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = read_constants()
    path = tmp_path / "before.json"
    path.write_text(json.dumps(dump_config(before)), encoding="utf-8")
    encoding = EncodingConstants(network="another", photo_s=1.0, text_s=2.0)
    monkeypatch.setattr(constants, "measure_encoding", lambda: encoding)
    now = measure(["encoding"], path, "a command", MeasuredSizes())
    assert now.encoding == encoding
    assert (now.command, now.first_stage, now.engine) == (
        "a command",
        before.first_stage,
        before.engine,
    )


FIGURES = {
    "items": 3000,
    "tokens": "int8",
    "build_s": {"draw": 9.0, "pack": 1.0, "write": 0.5, "ann": 0.25},
    "build_rss_bytes": 3,
    "search_rss_bytes": 4,
    "disk_bytes": 5,
    "p50_ms": 6.0,
    "p95_ms": 7.0,
}


def test_the_figures_of_an_index_are_held_against_its_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, out = tmp_path / "scale.json", tmp_path / "measurements.json"
    figures.write_text(json.dumps(FIGURES), encoding="utf-8")
    command = ["plan_check", "--figures", str(figures), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    assert plan_check.main() == 1  # nothing of it is like a real one
    run = read_measurements(out).runs[0]
    assert (run.items, run.build_s, run.p50_s, run.serving_bytes) == (3000, 1.75, 0.006, 4)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 6
    assert lines[2].startswith("| disk_bytes | 3,000 | ")


def test_other_sizes_stay_beside_new_ones_of_the_same_machine() -> None:
    machine = constants.this_machine()
    old = [plan_check.run_of(FIGURES | {"items": items}) for items in (1000, 3000)]
    new = [plan_check.run_of(FIGURES | {"items": 3000, "p50_ms": 1.0})]
    before, now = (Measurements(machine=machine, runs=runs) for runs in (old, new))
    merged = plan_check.with_runs(before, now)
    assert [(run.items, run.p50_s) for run in merged.runs] == [(1000, 0.006), (3000, 0.001)]
    elsewhere = dataclasses.replace(before, machine=dataclasses.replace(machine, processor="?"))
    assert plan_check.with_runs(elsewhere, now) == now


@pytest.mark.slow
def test_the_quick_form_measures_all_but_the_engine(tmp_path: Path) -> None:
    sections = ["first_stage", "forms", "index", "encoding"]
    out = tmp_path / "constants.json"
    command = [sys.executable, "-m", "benchmarks.search.constants", "--quick", "--out", str(out)]
    subprocess.run([*command, "--only", *sections], check=True, capture_output=True)
    made = read_constants(out)
    assert made.first_stage.widths[-1].items == constants.QUICK_SIZES.first_stages[-1]
    assert 1 < made.search.spread < 10
    assert made.process.serving_bytes > 10**8
