"""TREC files: qrels and runs, whose order is the same in every tool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aladin_network.errors import DataError, InputError
from aladin_training.data.trec import (
    RankedQuery,
    falling_scores,
    read_qrels,
    write_qrels,
    write_run,
)


def test_qrels_are_read_as_written(tmp_path: Path) -> None:
    pairs = [("a b", "50%"), ("ü", "x\ty"), ("q#1", "photos/1.jpg")]
    write_qrels(tmp_path / "qrels", pairs)

    assert [(each.query, each.document) for each in read_qrels(tmp_path / "qrels")] == pairs
    assert (tmp_path / "qrels").read_text().splitlines()[0] == "a%20b 0 50%25 1"


def test_a_grade_is_any_finite_number(tmp_path: Path) -> None:
    file = tmp_path / "qrels"
    file.write_text("query-id\tcorpus-id\tscore\nq\ta\t1.0\nq\tb\t0\nq\tc\t0.5\n")
    assert [each.relevance for each in read_qrels(file)] == [1.0, 0.0, 0.5]
    for grade in ("nan", "inf", "yes"):
        file.write_text(f"q\ta\t{grade}\n")
        with pytest.raises(DataError, match=f"qrels:1: .*expected a number, got '{grade}'"):
            list(read_qrels(file))


def test_a_run_has_six_columns(tmp_path: Path) -> None:
    queries = [RankedQuery("a b", ["x", "y"], [0.5, 0.25]), RankedQuery("c", ["z"], [-3.0])]
    write_run(tmp_path / "run", queries, "fused")

    assert (tmp_path / "run").read_text() == (
        "a%20b Q0 x 1 0.5 fused\na%20b Q0 y 2 0.25 fused\nc Q0 z 1 -3.0 fused\n"
    )
    with pytest.raises(InputError, match="tag: expected a name without white space, got 'a b'"):
        write_run(tmp_path / "run", queries, "a b")


def test_ties_are_broken_in_single_precision() -> None:
    falling = falling_scores([1.0, 1.0, 1.0 - 1e-12, 0.5, 0.5])

    assert falling[0] == 1.0 and falling[3] == 0.5
    single = np.asarray(falling, dtype=np.float32)
    assert (np.diff(single) < 0).all()
    assert single.tolist() == falling
    np.testing.assert_allclose(falling, [1, 1, 1, 0.5, 0.5], atol=1e-6)
