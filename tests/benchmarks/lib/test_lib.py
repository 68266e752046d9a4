"""What benchmarks share: tables, clocks, weights by capability, synthetic photos."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import house
from benchmarks.lib.measuring import quiet_median_s, quiet_time
from benchmarks.lib.output import figures_parser, median_and_most, print_figures, print_rows
from benchmarks.lib.processes import processor_time_s
from benchmarks.lib.recorded_calls import record_requests
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import Photos, stand_in_source
from benchmarks.lib.weight import Weight, capability, weights
from benchmarks.search.synthetic_check import real_queries, statistics


def test_figures_are_json_a_line_each_or_a_markdown_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {"queries": 7, "ratio": 0.85649, "rates": [1.0, 2.0]}
    print_figures(figures, as_json=True)
    assert json.loads(capsys.readouterr().out) == figures
    print_figures(figures, as_json=False)
    print_rows(["engine", "ms"], [["ours", 1]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["queries  7", "ratio    0.856"]
    assert lines[2:] == ["| engine | ms |", "| --- | ---: |", "| ours | 1 |"]
    assert (median_and_most([1.0, 9.04, 2.0]), median_and_most([])) == ([2.0, 9.0], [])
    with pytest.raises(SystemExit):
        figures_parser("Without a quick form.").parse_args(["--quick"])


WORKER = """
import threading, time
def work():
    while time.thread_time() < 0.1: pass
thread = threading.Thread(target=work); thread.start(); thread.join()
print(flush=True)
input()
"""


def test_clocks_count_what_is_computed_and_not_what_is_waited_for() -> None:
    with quiet_time() as slept:
        time.sleep(0.2)
    assert slept.seconds < 0.1
    assert quiet_median_s(lambda _: time.sleep(0.02), 3) < 0.01
    with quiet_time() as computed:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
    assert computed.seconds >= 0.05
    # Of other processes, with their threads that have ended.
    worker = subprocess.Popen(
        [sys.executable, "-ISc", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    assert processor_time_s([worker.pid]) >= 0.1
    time.sleep(0.05)
    both_s = processor_time_s([worker.pid, os.getpid()])
    apart_s = processor_time_s([worker.pid]) + processor_time_s([os.getpid()])
    assert both_s == pytest.approx(apart_s, abs=0.02)
    worker.communicate(b"\n")
    with pytest.raises(OSError):
        processor_time_s([worker.pid])


def test_functions_of_packages_elsewhere_are_refused_and_not_counted_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=f"expected the packages of {tmp_path}, got those of /"):
        record_requests(tmp_path)
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["house", "--query"])
    with pytest.raises(SystemExit, match="install this repository"):
        house.main()


def test_lines_count_for_a_capability_by_kind_and_by_change(tmp_path: Path) -> None:
    assert {file: capability(Path(file)) for file in ("README.md", "tests/conftest.py")} == {
        "README.md": ".",
        "tests/conftest.py": "tests",
    }
    files = {
        "aladin/aladin_network/heads/a.py": '"""One.\n\nTwo.\n"""\nx = 1\n',
        "tests/aladin/heads/test_a.py": "assert 1\nassert 2\n",
        "service/aladin_service/page/a.js": "f();\n",
        "docs/A.md": "three plain words\n",
        "docs/a.toml": "a = 1\n",
        "docs/a.png": "no text",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@a.example"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "docs/a.toml").write_text("a = 2\nb = 3\n")
    assert weights(tmp_path, since="HEAD") == {
        "aladin/heads": Weight(code=1, docstrings=4, tests=2),
        "docs": Weight(data=2, words=3, added=2, removed=1),
        "service/page": Weight(page=1),
    }


def drawn(synthetic: SyntheticPhotos, count: int, batch: int = 2048) -> Photos:
    parts = list(synthetic.photos(count, batch))
    return Photos(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def test_synthetic_photos_depend_on_seed_and_number_and_resemble_their_source() -> None:
    source = stand_in_source()
    synthetic = SyntheticPhotos(source, seed=3)
    many, few = drawn(synthetic, 1100, batch=512), drawn(synthetic, 600)
    # The matrix product of a block that was cut short may sum in another order.
    np.testing.assert_allclose(few.embeddings, many.embeddings[:600], atol=1e-5)
    np.testing.assert_allclose(few.tokens, many.tokens[:600], atol=1e-5)
    other = drawn(SyntheticPhotos(source, seed=4), 600)
    assert np.abs(other.embeddings - few.embeddings).max() > 0.1
    for vectors, axis in ((few.embeddings, 1), (few.tokens, 2)):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=axis), 1, atol=1e-5)
    kept = drawn(SyntheticPhotos(source.keeping(4)), 20)
    assert (kept.embeddings.shape, kept.tokens.shape) == ((20, 256), (20, 4, 128))
    np.testing.assert_array_equal(
        source.keeping(4).photos.tokens, source.photos.tokens[:, [0, 12, 24, 36]]
    )
    queries = synthetic.queries(60, 600)
    cosines = queries.embeddings @ few.embeddings.T
    own = cosines[np.arange(60), queries.photos]
    assert np.median((cosines > own[:, None]).sum(axis=1)) < 60
    assert all(8 <= len(words) <= 16 for words in queries.words)
    count = len(source.photos.embeddings)
    real = statistics(source.photos, real_queries(source))
    made = statistics(drawn(synthetic, count), synthetic.queries(100, count))
    for name in (
        "cosine of two photos",
        *(f"cosine to a photo's neighbour {place}" for place in (1, 10, 100)),
        "cosine of a text to photo 10",
        "best region of a word, another photo",
        "correlation of matching and alignment",
        "alignment's top 10 among 50 candidates",
    ):
        np.testing.assert_allclose(made[name], real[name], atol=0.03, err_msg=name)
