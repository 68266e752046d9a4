"""The benchmark of cards, on a machine that may have none."""

import json
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]


def test_quick_measures_what_there_is() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--quick", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["items"] == 2000
    engines = figures["engines"]
    assert len(engines) >= 2
    if not torch.cuda.is_available():
        assert figures["card"] is None
        assert list(engines) == ["processor", "torch on the processor"]
    for values in engines.values():
        if values is not None:
            assert values["ann_recall"] >= 0.99
            assert 0 < values["retrieve_ms"] < values["search_ms"] <= values["p95_ms"]
