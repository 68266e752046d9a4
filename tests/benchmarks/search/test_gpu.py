"""The benchmark of searches on a GPU, on a machine that may have none."""

from pathlib import Path

import pytest
import torch

from aladin_index.settings import BuildSettings
from benchmarks.lib.synthetic import SyntheticPhotos, write_synthetic_index
from benchmarks.lib.synthetic_sources import stand_in_source
from benchmarks.search.gpu import measure, print_table


def test_without_a_gpu_the_processor_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    photos = SyntheticPhotos(stand_in_source())
    seconds = write_synthetic_index(tmp_path, photos, 600, BuildSettings(token_dtype="int8"))
    assert set(seconds) == {"draw", "pack", "write", "ann"}
    assert all(value >= 0 for value in seconds.values())
    figures = measure(tmp_path, photos.queries(5, 600))
    assert figures["gpu"] is None
    assert figures["items"] == 600
    assert list(figures["engines"]) == ["processor", "torch on the processor"]
    for values in figures["engines"].values():
        assert values["ann_recall"] == 1.0
        assert values["gpu_bytes"] == 0
        assert 0 < values["retrieve_ms"] < values["search_ms"] <= values["p95_ms"]
    print_table(figures)
    shown = capsys.readouterr().out
    assert "torch finds no GPU here" in shown
    assert shown.count("| 1.000 |") == 2
