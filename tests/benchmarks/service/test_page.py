"""The quick form of the benchmark of the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lib.served_index import QUICK_SIZE, make_served_index
from benchmarks.service.chromium import NO_CHROMIUM
from benchmarks.service.page_states import STATES
from benchmarks.service.page_visits import LOOKS

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[3]


def test_page(tmp_path: Path) -> None:
    index = make_served_index(tmp_path, QUICK_SIZE)
    pictures = tmp_path / "pictures"
    options = ["--quick", "--json", "--index", str(index), "--screenshots", str(pictures)]
    command = [sys.executable, "-m", "benchmarks.service.page", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if NO_CHROMIUM in done.stderr:
        pytest.skip(NO_CHROMIUM)
    assert done.returncode == 0, done.stderr

    figures = json.loads(done.stdout)
    assert figures["first_paint_ms"] > 0
    assert figures["answer_to_shown_p95_ms"] >= figures["answer_to_shown_ms"] > 0
    assert figures["answer_to_photos_ms"] > figures["answer_to_shown_ms"]
    assert {"/", "/page/page.js", "/page/page.css"} <= figures["files"].keys()
    assert figures["page_bytes"] == sum(figures["files"].values()) < 200_000
    for count, every in (
        ("axe_violations", "every_violation"),
        ("complaints", "every_complaint"),
        ("requests_elsewhere", "elsewhere"),
    ):
        assert (figures[count], figures[every]) == (0, [])
    assert figures["overflow_px"] == 0
    seen = {file.stem.rpartition("-")[::2] for file in pictures.iterdir()}
    assert {look for _, look in seen} == LOOKS.keys()
    assert {state for state, _ in seen} <= STATES.keys()
