"""The quick forms of the benchmarks that serve an index under load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def figures_of(module: str, *arguments: str) -> dict[str, Any]:
    """Run the quick form of a benchmark."""
    command = [
        sys.executable,
        "-m",
        f"benchmarks.service.{module}",
        "--quick",
        "--json",
        *arguments,
    ]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index that the quick forms serve."""
    from benchmarks.lib.served_index import QUICK_SIZE, make_served_index

    return make_served_index(tmp_path_factory.mktemp("served"), QUICK_SIZE)


@pytest.mark.slow
def test_http_load(index: Path) -> None:
    figures = figures_of("http_load", "--index", str(index))
    # Which of the two is more says the machine, and what else is going on there.
    assert figures["single_p50_ms"] > 0
    assert figures["overhead_p50_ms"] == pytest.approx(
        figures["single_p50_ms"] - figures["pipeline_p50_ms"]
    )
    assert figures["saturation_ratio"] == pytest.approx(
        figures["service_per_s"] / figures["pipeline_per_s"]
    )
    assert figures["accepted"] > 0
    assert figures["other_failures"] == 0
