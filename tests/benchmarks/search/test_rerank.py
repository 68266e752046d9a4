import importlib.util
import json

import numpy as np
import pytest
import torch

from benchmarks.search import rerank
from benchmarks.search import rerank as maxsim_engines
from benchmarks.search.rerank import numpy_matmul, torch_int8, torch_matmul


def test_the_quick_form_prints_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    rerank.main(["--quick", "--json"])
    assert torch.get_num_threads() == threads
    report = json.loads(capsys.readouterr().out)
    assert list(report["candidates"]) == ["100", "1000"]
    for entry in report["candidates"].values():
        timed = {f"{name}_ms" for name in rerank.NAMED}
        is_installed = importlib.util.find_spec("maxsim_cpu") is not None
        absent = set() if is_installed else {"maxsim_cpu_ms"}
        assert {name for name in timed if entry[name] is None} == absent
        assert all(entry[name] > 0 for name in timed - absent)
        others = [entry[f"{name}_ms"] for name in ("torch_bf16", "torch_f32", "numpy")]
        assert entry["ours_over_fastest"] >= round(entry["ours_ms"] / min(others), 3)
        assert {"torch_int8_ms", "ours_4bit_ms", "torch_bf16_gathered_ms"} <= set(entry["more"])


def test_a_table_has_a_line_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"ours_ms": 0.5, "maxsim_cpu_ms": None, "more": {"torch_int8_ms": 1.25}}
    report = {"items": 9, "path": "avx2", "repetitions": 3, "candidates": {"100": entry}}
    rerank.print_table(report)
    assert capsys.readouterr().out.splitlines() == [
        "9 photos, path avx2, p50 of 3, ms",
        "|  | 100 candidates |",
        "| --- | ---: |",
        "| ours | 0.500 |",
        "| maxsim_cpu |  |",
        "| torch_int8 | 1.250 |",
    ]


def test_the_engines_compute_the_same_scores() -> None:
    random = np.random.default_rng(0)
    words = random.standard_normal((5, 16)).astype(np.float32)
    photos = random.standard_normal((7, 9, 16)).astype(np.float32)
    expected = [sum((photo @ word).max() for word in words) for photo in photos]
    word_tensor, photo_tensor = torch.from_numpy(words), torch.from_numpy(photos)
    np.testing.assert_allclose(numpy_matmul(words, photos), expected, rtol=1e-5)
    np.testing.assert_allclose(torch_matmul(word_tensor, photo_tensor), expected, rtol=1e-5)
    int8 = torch_int8(rerank.quantise(word_tensor), rerank.quantise(photo_tensor))
    np.testing.assert_allclose(int8, expected, atol=0.3)


def test_a_package_that_is_not_there_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(maxsim_engines.importlib, "import_module", missing)
    assert maxsim_engines.maxsim_cpu() is None
    assert "maxsim-cpu is not installed" in capsys.readouterr().err
