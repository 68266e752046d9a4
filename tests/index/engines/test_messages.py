"""Rows and keys are sent in messages of a size that the server takes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aladin_index.engines.rows import CollectionForm, batches, parts_of, row_of
from tests.index.engines.made_up import codec_of, entry, schema_of

MOST_BYTES, MOST_ROWS = 4 * 2**20, 2000


@given(st.lists(st.sampled_from([0, 1, 2**18, 2**19, 3 * 2**19 + 1, 2**21]), max_size=30))
def test_no_message_is_too_large_unless_one_row_is(sizes: list[int]) -> None:
    texts = {size: "x" * size for size in set(sizes)}
    rows = [{"text": texts[size]} for size in sizes]
    made = list(batches(rows))
    assert [row for batch in made for row in batch] == rows
    for batch in made:
        assert sum(len(row["text"]) for row in batch) <= MOST_BYTES
    for batch, after in pairwise(made):
        assert sum(len(row["text"]) for row in [*batch, after[0]]) > MOST_BYTES


def test_a_row_that_is_too_large_goes_alone() -> None:
    rows: list[dict[str, Any]] = [{"text": "x" * length} for length in (1, MOST_BYTES + 1, 1)]
    assert list(batches(rows)) == [[rows[0]], [rows[1]], [rows[2]]]


def test_small_rows_go_together() -> None:
    codec = codec_of("float16")
    rows = [row_of(entry(1, codec), CollectionForm.of(schema_of(codec), "flat"))] * (MOST_ROWS + 1)
    assert [len(batch) for batch in batches(rows)] == [MOST_ROWS, 1]
    assert list(batches([])) == []


def test_keys_in_parts() -> None:
    keys = [str(number) for number in range(2500)]
    parts = list(parts_of(keys))
    assert [len(part) for part in parts] == [1000, 1000, 500]
    assert [key for part in parts for key in part] == keys
    assert list(parts_of([])) == []
    assert [len(part) for part in parts_of(keys, 999)] == [999, 999, 502]
