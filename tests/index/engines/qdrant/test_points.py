"""Filters in Qdrant's language, held against what the items say."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aladin_index.engines.client import EngineQuery
from aladin_index.engines.qdrant.client import QdrantEngine
from aladin_index.engines.qdrant.points import conditions
from aladin_index.items.filters import parse_filter
from aladin_network.errors import InputError
from tests.index.engines.made_up import EMBEDDING_DIM, codec_of, entry, schema_of, unit

BIG = 2**53
METADATA: list[dict[str, Any]] = [
    {"n": 1, "t": "x"},
    {"n": 1.5, "t": ["x", "y"]},
    {"n": [1, 9]},
    {"n": -0.0},
    {"n": BIG},
    {"n": BIG + 1},
    {"n": [BIG + 1, BIG - 5]},
    {"n": [BIG + 1, BIG + 2]},
    {"n": -BIG - 1},
    {"n": 2**63 - 1},
    {"n": 2**70},
    {"n": float("inf")},
    {"n": "1"},
    {"n": True},
    {"n": None},
    {"n": []},
    {},
    {"a.b[0]": "quoted \"'", "t": "\0"},
]
BOUNDS = [0, 1, 1.25, 9, BIG - 1, BIG, BIG + 1, BIG + 2, -BIG, -BIG - 1, 2**63 - 1, 1e300]


def numbers(metadata: Mapping[str, Any]) -> list[float]:
    value: Any = metadata.get("n")
    values: list[Any] = value if isinstance(value, list) else [value]
    return [each for each in values if type(each) in (int, float)]


@pytest.fixture
def ids(engine: QdrantEngine) -> list[str]:
    """An engine with items that have the metadata."""
    codec = codec_of("float16")
    entries = [entry(number, codec, metadata) for number, metadata in enumerate(METADATA)]
    engine.create_collection(1, "texts", schema_of(codec))
    engine.upsert(1, "texts", entries)
    return [each.item.id for each in entries]


def passing(engine: QdrantEngine, spec: Mapping[str, Any]) -> set[int]:
    query = unit(np.random.default_rng(0), EMBEDDING_DIM)
    found = engine.search(
        EngineQuery(
            generation=1, target="texts", embedding=query, count=99, filter=parse_filter(spec)
        )
    )
    return {each.entry.item.row for each in found}


@pytest.mark.usefixtures("ids")
def test_ranges_compare_numbers_exactly(engine: QdrantEngine) -> None:
    compare: dict[str, Callable[[float, float], bool]] = {
        "gt": operator.gt,
        "gte": operator.ge,
        "lt": operator.lt,
        "lte": operator.le,
    }
    for (name, passes), bound in itertools.product(compare.items(), BOUNDS):
        expected = {
            row
            for row, metadata in enumerate(METADATA)
            if any(passes(value, bound) for value in numbers(metadata))
        }
        assert passing(engine, {"n": {name: bound}}) == expected, (name, bound)


@pytest.mark.usefixtures("ids")
def test_bounds_may_be_passed_by_different_values(engine: QdrantEngine) -> None:
    assert passing(engine, {"n": {"gte": 3, "lt": 5}}) == {2}
    assert passing(engine, {"n": {"gt": BIG, "lt": BIG}}) == {6}


@pytest.mark.usefixtures("ids")
def test_equality_keeps_kinds_apart(engine: QdrantEngine) -> None:
    assert passing(engine, {"n": 1}) == {0, 2}
    assert passing(engine, {"n": "1"}) == {12}
    assert passing(engine, {"n": True}) == {13}
    assert passing(engine, {"n": BIG + 1}) == {5, 6, 7}
    assert passing(engine, {"n": 0.0}) == {3}
    assert passing(engine, {"t": ["y", "\0"]}) == {1, 17}
    assert passing(engine, {"a.b[0]": "quoted \"'"}) == {17}


@pytest.mark.usefixtures("ids")
def test_opposites_let_items_without_values_through(engine: QdrantEngine) -> None:
    everything = set(range(len(METADATA)))
    assert passing(engine, {"t": {"ne": "x"}}) == everything - {0, 1}
    assert passing(engine, {"t": {"nin": ["y", "z"]}}) == everything - {1}
    assert passing(engine, {"n": {"exists": False}}) == {14, 15, 16, 17}
    assert passing(engine, {"not": {"n": {"lt": 2}}, "or": [{"t": "x"}, {"n": 2**70}]}) == {10}


def test_texts_have_no_order_in_qdrant() -> None:
    filter = parse_filter({"or": [{"n": 1}, {"t": {"gte": "x"}}]})
    assert filter is not None
    with pytest.raises(InputError, match="filter field 't': gte takes a number in an index that"):
        conditions(filter)
