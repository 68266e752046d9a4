"""Benchmarks in this process, which would each start others for seconds."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aladin_network.graphs.threads import compute_threads, set_compute_threads

RunBenchmark = Callable[..., Any]


@pytest.fixture(autouse=True)
def stand_in_photos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Photos from the stand-in, and the threads of the process left as they were."""
    threads = compute_threads()
    monkeypatch.setattr("benchmarks.lib.synthetic_sources.DEFAULT_SOURCE", tmp_path / "none")
    yield
    set_compute_threads(threads)


@pytest.fixture
def run_benchmark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> RunBenchmark:
    """Return a function that runs a command in this process, and returns the figures it prints."""

    def run(name: str, *words: str, **constants: Any) -> Any:
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr("sys.argv", [name, *words, "--json"])
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
        if hasattr(module, "in_fresh_process"):
            monkeypatch.setattr(module, "in_fresh_process", lambda task, *given: task(*given))
            monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
        module.main()
        return json.loads(capsys.readouterr().out)

    return run
