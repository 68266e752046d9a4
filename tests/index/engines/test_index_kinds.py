"""The kinds of first stages and their parameters."""

from __future__ import annotations

from typing import Any

import pytest

from aladin_index.engines.index_kinds import (
    INDEX_KINDS,
    index_kind,
    kind_for,
    search_params,
    widths_of,
)


def params(
    name: str, chosen: dict[str, Any], count: int, width: int | None = None, *, filtered: bool
) -> dict[str, Any]:
    """Return the parameters that are of the kind."""
    found = search_params(index_kind(name), chosen, count, width=width, filtered=filtered)
    assert found["metric_type"] == "IP"
    return found["params"]


@pytest.mark.parametrize(
    ("asked", "count", "expected"),
    [
        (None, 0, "flat"),
        (None, 50_000, "flat"),
        (None, 50_001, "hnsw"),
        ("hnsw", 1023, "flat"),
        ("hnsw", 1024, "hnsw"),
        ("ivf_sq8", 10**6, "ivf_sq8"),
    ],
)
def test_few_items_are_compared_one_by_one(asked: str | None, count: int, expected: str) -> None:
    assert kind_for(asked, count) == expected


def test_a_graph_is_walked_at_least_as_wide_as_the_hits_wanted() -> None:
    assert params("hnsw", {}, 100, 256, filtered=False) == {"ef": 256}
    assert params("hnsw", {}, 1000, 256, filtered=False) == {"ef": 1000}
    assert params("hnsw", {"ef": 400}, 1000, filtered=False) == {"ef": 1000}
    assert params("ivf_flat", {}, 1000, 16, filtered=False) == {"nprobe": 16}


def test_a_filter_widens_a_search_without_a_fixed_width() -> None:
    assert params("hnsw", {}, 100, 256, filtered=True) == {"ef": 2048}
    assert params("hnsw", {"ef": 400}, 100, 256, filtered=True) == {"ef": 400}


def test_without_a_width_it_looks_as_far_as_any() -> None:
    assert params("hnsw", {}, 100, filtered=False) == {"ef": 4096}


def test_parameters_of_another_kind_are_left_out() -> None:
    assert params("ivf_flat", {"ef": 400, "nprobe": 8}, 10, 64, filtered=False) == {"nprobe": 8}
    assert params("flat", {"ef": 400}, 10, 64, filtered=True) == {}


def test_widths_are_those_of_the_kind_or_the_one_that_was_chosen() -> None:
    assert widths_of(index_kind("flat"), {"ef": 400}) == ()
    assert widths_of(index_kind("hnsw"), {"ef": 400}) == (400,)
    assert widths_of(index_kind("hnsw"), {})[:2] == (128, 256)


def test_lists_grow_with_the_root_of_the_items() -> None:
    build = index_kind("ivf_sq8").build_params
    assert [build(count)["nlist"] for count in (0, 256, 10_000, 10**9)] == [64, 64, 400, 65_536]


def test_each_kind_is_called_as_milvus_calls_it() -> None:
    assert {name: kind.name for name, kind in INDEX_KINDS.items()} == {
        name: name.upper() for name in INDEX_KINDS
    }
