"""Hits in the order of a metadata field."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aladin_index.search.answer import in_order
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import HitStages, SearchHit, Stage
from aladin_network.errors import InputError


def hit(rank: int, metadata: dict[str, Any]) -> SearchHit:
    stages = HitStages(match=Stage(rank=rank, score=1 / rank), align=None)
    return SearchHit(
        id=str(rank),
        rank=rank,
        score=1 / rank,
        per_word=None,
        stages=stages,
        uri=None,
        text=None,
        metadata=metadata,
        evidence=None,
    )


def order(sort: str, *values: Any) -> list[int]:
    """Ranks of hits with these values of the field "x", as they are ordered."""
    hits = [hit(rank, {} if value is ... else {"x": value}) for rank, value in enumerate(values, 1)]
    return [each.rank for each in in_order(hits, sort)]


def test_numbers_and_texts_both_ways() -> None:
    assert order("x", 3, 1.5, 2) == [2, 3, 1]
    assert order("-x", 3, 1.5, 2) == [1, 3, 2]
    assert order("x", "2024-07-31T18:05:09", "2023-12-31T00:00:00", "2024-07-31") == [2, 3, 1]
    assert order("-x", "b", "B", "ä") == [3, 1, 2]


def test_large_integers_are_compared_exactly() -> None:
    assert order("x", 2**53 + 1, 2**53, 2.0**53 + 2) == [2, 1, 3]


def test_hits_without_a_value_come_last_and_equal_ones_keep_their_order() -> None:
    assert order("x", ..., 2, None, 1, {}, 2, []) == [4, 2, 6, 1, 3, 5, 7]
    assert order("-x", ..., 2, None, 1, {}, 2, []) == [2, 6, 4, 1, 3, 5, 7]


def test_kinds_are_not_compared_with_each_other() -> None:
    assert order("x", "1", 5, True, "0", False) == [2, 4, 1, 5, 3]


def test_of_a_list_the_value_that_comes_first() -> None:
    assert order("x", [5, 9], [7, 1], 4) == [2, 3, 1]
    assert order("-x", [5, 9], [7, 1], 8) == [1, 3, 2]


def test_any_values_are_ordered_as_a_slow_comparison_orders_them() -> None:
    values = [random.Random(seed).choice([..., 1, 2, 3, 4]) for seed in range(200)]
    ranked = list(enumerate(values, 1))
    expected = [rank for wanted in (4, 3, 2, 1, ...) for rank, value in ranked if value == wanted]
    assert order("-x", *values) == expected


def test_without_a_field_to_sort_by() -> None:
    SearchOptions(sort="-x").check()
    for sort in ("", "-"):
        with pytest.raises(InputError, match="sort: expected the name of a field"):
            SearchOptions(sort=sort).check()
