"""Generations swapped under load, in short."""

from __future__ import annotations

import pytest

from benchmarks.service.swap import measure


@pytest.mark.slow
def test_no_answer_fails_and_none_is_mixed() -> None:
    figures = measure(swaps=5, queries=1500, workers=2)
    assert (figures.queries, figures.swaps, figures.broken) == (1500, 5, 1)
    assert (figures.failed, figures.mixed, figures.stale, figures.not_reported) == (0, 0, 0, 0)
    assert figures.generations_seen >= 2
