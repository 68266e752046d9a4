"""The quick form of the cold benchmark, and what it says of pages in memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.index.cold import drop_pages

ROOT = Path(__file__).parents[3]


def test_quick_opens_and_searches_in_a_fresh_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.index.cold", "--quick", "--json"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    figures = json.loads(done.stdout)
    assert (figures["items"], figures["rounds"]) == (2000, 1)
    assert 0 <= figures["left_share"] <= 1
    assert figures["first_ms"] >= figures["again_ms"] > 0
    assert figures["early_ms"] > 0 and figures["open_ms"] > 0
    assert (tmp_path / "index" / "CURRENT").exists()


def test_pages_that_the_system_keeps_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "read.bin").write_bytes(bytes(2**20))
    (tmp_path / "empty").touch()
    advised: list[int] = []

    def keep(descriptor: int, start: int, length: int, advice: int) -> None:
        assert (start, length) == (0, 0)
        os.pread(descriptor, 2**20, 0)
        advised.append(advice)

    monkeypatch.setattr(os, "posix_fadvise", keep)
    assert drop_pages(tmp_path) == 1
    assert advised == [os.POSIX_FADV_DONTNEED]
