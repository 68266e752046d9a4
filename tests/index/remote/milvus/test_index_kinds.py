"""The kinds of first stages and their parameters."""

from __future__ import annotations

import pytest

from aladin.errors import ConfigError
from index.remote.milvus.index_kinds import INDEX_KINDS, index_kind, search_params


def test_a_graph_is_walked_at_least_as_wide_as_the_hits_wanted() -> None:
    hnsw = index_kind("hnsw")
    assert search_params(hnsw, {}, 100) == {"metric_type": "IP", "params": {"ef": 200}}
    assert search_params(hnsw, {}, 1000)["params"] == {"ef": 1000}
    assert search_params(hnsw, {"ef": 400}, 100)["params"] == {"ef": 400}


def test_parameters_of_another_kind_are_left_out() -> None:
    assert search_params(index_kind("ivf_flat"), {"ef": 400, "nprobe": 8}, 10)["params"] == {
        "nprobe": 8
    }
    assert search_params(index_kind("flat"), {"ef": 400}, 10)["params"] == {}


def test_lists_grow_with_the_root_of_the_items() -> None:
    build = index_kind("ivf_sq8").build
    assert [build(count)["nlist"] for count in (0, 256, 10_000, 10**9)] == [64, 64, 400, 65_536]


def test_each_kind_is_called_as_milvus_calls_it() -> None:
    assert {name: kind.name for name, kind in INDEX_KINDS.items()} == {
        name: name.upper() for name in INDEX_KINDS
    }


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="index: expected one of flat, hnsw"):
        index_kind("annoy")
