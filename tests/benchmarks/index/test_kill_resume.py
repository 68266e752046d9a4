"""The quick form: a few builds are killed and resumed."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_quick_prints_what_was_counted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.index.kill_resume", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert figures["kills"] == figures["identical"] == 4
    assert figures["broken_reads"] == 0, figures["breaks"]
    assert figures["reads"] > figures["builds"] >= 1
    assert sum(figures["killed_while"].values()) == 4
