"""The kinds of first stages and their parameters."""

from __future__ import annotations

from typing import Any

import pytest

from aladin_index.engines.collections import (
    INDEX_KINDS,
    index_kind,
    kind_for,
    search_params,
    widths_of,
)


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


@pytest.mark.parametrize(
    ("name", "chosen", "count", "width", "filtered", "expected"),
    [
        ("hnsw", {}, 100, 256, False, {"ef": 256}),
        ("hnsw", {}, 1000, 256, False, {"ef": 1000}),  # at least as wide as the hits wanted
        ("hnsw", {"ef": 400}, 1000, None, False, {"ef": 1000}),
        ("hnsw", {}, 100, None, False, {"ef": 4096}),
        ("hnsw", {}, 100, 256, True, {"ef": 2048}),  # a filter widens it
        ("hnsw", {"ef": 400}, 100, 256, True, {"ef": 400}),  # but not one that was fixed
        ("ivf_flat", {}, 1000, 16, False, {"nprobe": 16}),
        ("ivf_flat", {"ef": 400, "nprobe": 8}, 10, 64, False, {"nprobe": 8}),
        ("flat", {"ef": 400}, 10, 64, True, {}),
    ],
)
def test_a_search_is_as_wide_as_its_kind_its_hits_and_its_filter_need(
    name: str, chosen: dict[str, Any], count: int, width: int, filtered: bool, expected: object
) -> None:
    found = search_params(index_kind(name), chosen, count, width=width, filtered=filtered)
    assert found == {"metric_type": "IP", "params": expected}


def test_widths_and_lists_are_those_of_the_kind_as_milvus_calls_it() -> None:
    assert widths_of(index_kind("flat"), {"ef": 400}) == ()
    assert widths_of(index_kind("hnsw"), {"ef": 400}) == (400,)
    assert widths_of(index_kind("hnsw"), {})[:2] == (128, 256)
    build = index_kind("ivf_sq8").build_params
    assert [build(count)["nlist"] for count in (0, 256, 10_000, 10**9)] == [64, 64, 400, 65_536]
    assert all(kind.name == name.upper() for name, kind in INDEX_KINDS.items())
