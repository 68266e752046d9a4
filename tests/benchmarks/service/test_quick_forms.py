"""The commands that serve an index, in short; each takes up to a minute, but for the load's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engines.engine_kills import kill_engine_and_replicas
from benchmarks.lib.served_index import QUICK_SIZE, make_served_index
from benchmarks.lib.steps import Setup
from benchmarks.service.card_http import minilm
from benchmarks.service.chromium import NO_CHROMIUM
from benchmarks.service.faults import kill_workers
from benchmarks.service.full_disk import fill_and_add
from benchmarks.service.page_states import STATES
from benchmarks.service.page_visits import LOOKS
from benchmarks.service.swap import measure
from tests.milvus_needed import HAS_MILVUS, WITHOUT_MILVUS

ROOT = Path(__file__).parents[3]


def figures_of(name: str, *words: str) -> dict[str, Any]:
    """Run a command in its quick form."""
    command = [sys.executable, "-m", f"benchmarks.service.{name}", "--quick", "--json", *words]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    if NO_CHROMIUM in done.stderr:
        pytest.skip(NO_CHROMIUM)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index that the quick forms serve."""
    return make_served_index(tmp_path_factory.mktemp("served"), QUICK_SIZE)


@pytest.mark.slow
def test_load_is_compared_with_the_pipeline_without_http(index: Path) -> None:
    figures = figures_of("http_load", "--index", str(index))
    overhead = figures["single_p50_ms"] - figures["pipeline_p50_ms"]
    assert figures["overhead_p50_ms"] == pytest.approx(overhead)
    ratio = figures["service_per_s"] / figures["pipeline_per_s"]
    assert figures["saturation_ratio"] == pytest.approx(ratio)
    assert figures["accepted"] > 0 and figures["other_failures"] == 0


@pytest.mark.slow
def test_a_service_for_a_card_is_compared_with_its_pipeline(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("benchmarks.service.card_http.make_served_index", lambda *_: index)
    figures: dict[str, Any] = {}
    minilm(Setup(tmp_path, 10, is_quick=True, items=1000), figures.__setitem__)
    assert list(figures["pipeline"]) == [16, 64] and list(figures["service"]) == [1]
    service = figures["service"][1]
    assert 0 < service["p50_ms"] <= service["p99_ms"] and service["queries_per_s"] > 0
    best = service["queries_per_s"] / max(figures["pipeline"].values())
    assert figures["ratio"] == pytest.approx(best)


@pytest.mark.slow
def test_attacks_find_no_fault() -> None:
    figures = figures_of("hostile")
    assert figures["api_cases"] >= 300 and figures["images"] == 150
    assert figures["json"]["sent"] > 200 and figures["held_connections"] == 4 * 520
    assert figures["batch"]["others"] > 0
    for name in ("errors_5xx", "hangs", "leaks", "undocumented", "json_faults"):
        assert figures[name] == 0, figures["faults"]


@pytest.mark.slow
def test_a_killed_worker_fails_only_what_it_answered() -> None:
    figures = kill_workers(1)
    assert (figures["kills"], figures["reported"]) == (1, 1)
    assert (figures["unanswered"], figures["failed_waiting"]) == (0, 0)
    assert figures["answered"] > 0


@pytest.mark.slow
def test_a_full_disk_loses_nothing() -> None:
    figures = fill_and_add()
    assert figures["codes"] == ["507 cannot_write"] and figures["acknowledged"] > 0
    assert figures["added_again"] == figures["rejected"] == 5
    assert (figures["searches_failed"], figures["lost"], figures["half"]) == (0, 0, 0)


@pytest.mark.slow
def test_a_swap_fails_no_answer_and_mixes_none() -> None:
    figures = measure(swaps=5, queries=1500, workers=2)
    assert (figures.queries, figures.swaps, figures.broken) == (1500, 5, 1)
    assert (figures.failed, figures.mixed, figures.stale, figures.not_reported) == (0, 0, 0, 0)
    assert figures.generations_seen >= 2


@pytest.mark.browser
def test_the_page_is_small_accessible_and_asks_nobody_else(index: Path, tmp_path: Path) -> None:
    figures = figures_of("page", "--index", str(index), "--screenshots", str(tmp_path))
    assert figures["first_paint_ms"] > 0
    assert figures["first_page_browser_s"] > 0 and figures["first_page_service_s"] > 0
    assert figures["answer_to_shown_p95_ms"] >= figures["answer_to_shown_ms"] > 0
    assert figures["answer_to_photos_ms"] > figures["answer_to_shown_ms"]
    assert {"/", "/page/page.js", "/page/page.css"} <= figures["files"].keys()
    assert figures["page_bytes"] == sum(figures["files"].values()) < 200_000
    for faults in ("every_violation", "every_complaint", "elsewhere"):
        assert figures[faults] == []
    assert figures["overflow_px"] == 0
    seen = {file.stem.rpartition("-")[::2] for file in tmp_path.iterdir()}
    assert {look for _, look in seen} == LOOKS.keys()
    assert {state for state, _ in seen} <= STATES.keys()


@pytest.mark.cluster
@pytest.mark.skipif(not HAS_MILVUS, reason=WITHOUT_MILVUS)
def test_kills_of_milvus_and_of_a_replica_lose_nothing() -> None:
    figures = kill_engine_and_replicas(kills=2, replicas=2)
    assert figures["correct"] > 0 and figures["acknowledged"] > 0
    found = {name: figures[name] for name in ("wrong", "failed", "lost", "not_recovered")}
    assert found == dict.fromkeys(found, 0), figures["unexpected"]
