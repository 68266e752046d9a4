"""The attack by a batch: what is a fault."""

from __future__ import annotations

import pytest

from benchmarks.service.hostile_batch import BatchFigures

GOOD = BatchFigures(
    batch_s=20.0,
    batch_answer_mb=33.3,
    batch_peak_mb=150,
    others=200,
    others_429_share=0.0,
    others_median_ms=70.0,
    others_max_ms=210.0,
)


def test_a_batch_that_leaves_room_for_others_has_no_faults() -> None:
    assert GOOD.faults == []


@pytest.mark.parametrize(
    ("worse", "fault"),
    [
        (GOOD._replace(others_429_share=0.66), "66% of the others were rejected"),
        (GOOD._replace(batch_answer_mb=115.9), "an answer of 115.9 MB"),
        (GOOD._replace(batch_answer_mb=float("inf")), "an answer of inf MB"),
        (GOOD._replace(others=0), "no other search was sent"),
    ],
)
def test_whatever_is_over_its_bound_is_a_fault(worse: BatchFigures, fault: str) -> None:
    assert worse.faults == [fault]
