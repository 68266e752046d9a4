import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_network.graphs.threads import compute_threads, set_compute_threads
from benchmarks.index import build_speed


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Measures in this process, which stays on all of its cores."""
    threads = compute_threads()
    monkeypatch.setattr(build_speed, "in_fresh_process", lambda task, *given: task(*given))
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    yield
    set_compute_threads(threads)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Five photos, each with two captions."""
    random = np.random.default_rng(0)
    lines: list[str] = []
    for number in range(5):
        pixels = random.integers(0, 256, (40, 30 + number, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        captions = ["two dogs", "a dog " * (number + 1)]
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions}))
    file = tmp_path / "data.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_every_figure_is_there(
    exported_checkpoint: Path,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ALADIN_RUNTIME", raising=False)
    words = ["--rounds", "1", "--seconds", "0", "--cores", "1"]
    build_speed.main([str(exported_checkpoint), str(data), *words, "--json"])
    [report] = json.loads(capsys.readouterr().out)
    assert report["cores"] == 1
    assert [speed["items"] for speed in report["speeds"]] == ["images", "texts"]
    for speed in report["speeds"]:
        assert set(speed["engines"]) == {"onnxruntime", "torch"}
        assert min(speed["engines"].values()) > 0
        assert speed["ratio"] == pytest.approx(speed["build"] / max(speed["engines"].values()))
        assert speed["start_s"] > 0
    steps = report["steps_ms"]
    assert list(steps) == ["read", "decode", "resize", "normalise", "encode", "round and write"]
    assert steps["encode"] > steps["read"] > 0


def test_a_folder_without_captions(
    exported_checkpoint: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rounds", "1", "--seconds", "0", "--cores", "2", "--photos", "4"]
    build_speed.main([str(exported_checkpoint), str(data.parent), *words])
    lines = capsys.readouterr().out.split("\n")
    assert "2 cores" in lines
    assert sum(line.startswith("| images") for line in lines) == 1
    assert not any(line.startswith(("| texts", "| step")) for line in lines)
