"""``aladin index plan``: what it prints of a plan, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aladin_index.capacity.constants import PACKAGED_CONSTANTS, read_constants
from aladin_index.capacity.plan import plan_embedded
from aladin_index.capacity.workload import Workload
from aladin_service.cli import app


def plan(*words: object) -> Result:
    return CliRunner().invoke(app, ["index", "plan", *map(str, words)])


def planned(*words: object) -> dict[str, Any]:
    result = plan(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_numbers_of_the_command_line_are_planned() -> None:
    data = planned(
        *("--items", "2.5e6", "--dim", 128, "--tokens", "12x64", "--token-bits", 4),
        *("--qps", 7, "--p95-ms", 300, "--candidates", 50, "--words", 9, "--replicas", 3),
        *("--keep", 1, "--machine-memory", "32GiB", "--machine-cores", 8),
        *("--photos-per-second", 250, "--build-machines", 2),
    )
    workload = Workload(
        items=2_500_000,
        embedding_dim=128,
        tokens=12,
        token_dim=64,
        token_dtype="4bit",
        candidates=50,
        words=9,
        queries_per_s=7.0,
        p95_ms=300.0,
        replicas=3,
        generations=1,
        machine_memory_bytes=32 * 2**30,
        machine_cores=8,
        build_machines=2,
        photos_per_s=250.0,
    )
    assert Workload(**data["workload"]) == workload
    expected = plan_embedded(workload, read_constants())
    embedded = data["embedded"]
    assert embedded["disk_bytes"] == expected.disk_bytes
    assert embedded["search_ms"]["p95"] == pytest.approx(1000 * expected.search.p95_s)
    assert embedded["build_hours"]["encode"] == pytest.approx(2_500_000 / 250 / 2 / 3600)
    hours = embedded["build_hours"]
    assert hours["total"] == pytest.approx(sum(hours.values()) - hours["total"])


def test_the_form_of_the_json_stays() -> None:
    data = planned("--items", 1000)
    assert set(data) == {"workload", "embedded", "cluster", "checked_items", "constants"}
    both = {"basis", "disk_bytes", "memory_bytes", "build_hours", "query_ms", "machines", "problem"}
    assert set(data["embedded"]) == both | {
        *("first_stage", "generation_bytes", "least_memory_bytes", "resident", "search_ms"),
        *("build_memory_bytes", "least_build_memory_bytes"),
    }
    assert set(data["cluster"]) == both | {
        *("segments", "segment_items", "query_nodes", "service_machines", "other_machines"),
    }
    assert (data["embedded"]["basis"], data["cluster"]["basis"]) == ("checked", "extrapolated")
    assert data["constants"]["command"].startswith("python -m benchmarks.search.constants")


def test_a_table_says_what_is_extrapolated_and_what_cannot_be() -> None:
    small = plan("--items", "10_000")
    assert small.exit_code == 0, small.stderr
    assert "index of files (checked)" in small.stdout
    assert "held against real ones at 10,000, 100,000" in small.stdout
    large = plan("--items", "1e9", "--token-bits", 2, "--qps", 100)
    shown = " ".join(large.stdout.replace("│", " ").split())
    assert "1,000,000,000 photos" in shown
    assert "index of files (extrapolated)" in shown
    assert "Extrapolated: the index of files is held against real ones at" in shown
    assert "impossible: the first stage does" in shown
    assert "holds 0 % of the vectors and tokens" in shown


def test_other_constants_give_other_numbers(tmp_path: Path) -> None:
    data = json.loads(PACKAGED_CONSTANTS.read_text(encoding="utf-8"))
    data["encoding"]["photo_s"] *= 10
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    before = planned("--items", 1000)["embedded"]["build_hours"]
    now = planned("--items", 1000, "--constants", path)["embedded"]["build_hours"]
    assert now["encode"] == pytest.approx(10 * before["encode"])
    assert now["first_stage"] == before["first_stage"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--items", "many"), "expected a whole number such as 1e9, got 'many'"),
        (("--items", "0"), "expected a whole number such as 1e9, got '0'"),
        (("--items", "1.5"), "expected a whole number such as 1e9, got '1.5'"),
        (("--items", "inf"), "expected a whole number such as 1e9, got 'inf'"),
        (("--items", "5", "--tokens", "49"), "expected TOKENSxVALUES such as 49x128, got '49'"),
        (("--items", "5", "--tokens", "0x128"), "such as 49x128, got '0x128'"),
        (("--items", "5", "--token-bits", "3"), "'3' is not one of"),
        (("--items", "5", "--machine-memory", "lots"), "expected a size such as 8GiB"),
        (("--items", "5", "--qps", "0"), "queries_per_s: expected more than 0, got 0.0"),
        (("--items", "5", "--constants", "none.json"), "none.json: expected constants in JSON"),
    ],
)
def test_what_is_wrong_is_the_users_mistake(words: tuple[str, ...], message: str) -> None:
    result = plan(*words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""
