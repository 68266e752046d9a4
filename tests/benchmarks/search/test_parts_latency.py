"""The benchmark of the time of parts and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.search.parts_latency import measure


def test_each_kind_is_timed_beside_a_text(tmp_path: Path) -> None:
    figures = measure(120, 2, keep=tmp_path)
    kinds = ["two", "not", "not_three", "feedback", "lexical"]
    assert figures["items"] == 120
    for kind in kinds:
        ratio = figures[f"{kind}_p50_ms"] / figures["text_p50_ms"]
        assert figures[f"{kind}_over_text"] == pytest.approx(ratio)
