"""Filters mean in an engine what they mean in SQLite, for any metadata."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

import numpy as np
import pytest

from aladin_index.engines.filter_fields import (
    MAX_ORDERED_CHARS,
    expression,
    field_key,
    filter_fields,
    limit_of,
    number_text,
    quoted,
    terms_of,
)
from aladin_index.items.columns import GrowingColumns, combine
from aladin_index.items.filters import Bound, Equal, Scalar, leaves, parse_filter
from aladin_index.items.look_ups import read_values
from aladin_index.items.tables import StoredItem, create_tables, insert_items
from aladin_network.errors import InputError
from tests.index.engines.memory_engine import passes

# Among them some that a float cannot tell apart.
NUMBERS = [
    0,
    -0.0,
    1,
    1.0,
    -1.5,
    5e-324,
    2**53,
    2**53 + 1,
    float(2**53),
    -(2**53) - 1,
    2**63 - 1,
    -(2**63),
    2**63,
    1.7976931348623157e308,
]
# Items may have these, and JSON not hold them; nobody may ask for them.
INFINITE = [10**400, float("-inf")]
TEXTS = [
    "",
    "1",
    "true",
    "Zürich",
    "a",
    "b",
    "\U0001f415",
    "\uffff",
    "x" * 300,
    "x" * 300 + "y",
    "ü" * 200,
    "nul\0nul",
]
VALUES: list[Any] = [*NUMBERS, *INFINITE, *TEXTS, True, False, None, {"an": "object"}, float("nan")]
FIELDS = ["city", "a.b", "a[0]", "größe", "", "and", "f:number", "x" * 400]
COMPARISONS = ["gt", "gte", "lt", "lte"]


def some_metadata(random: np.random.Generator) -> dict[str, Any]:
    """Make up fields with a value, or a list of some."""
    metadata: dict[str, Any] = {}
    for field in FIELDS:
        chosen = [VALUES[place] for place in random.integers(0, len(VALUES), 4)]
        kind = int(random.integers(4))
        if kind:
            metadata[field] = chosen[0] if kind == 1 else chosen[: kind + 1]
    return metadata


def some_filters() -> list[dict[str, Any]]:
    """All tests of one field, and some filters that join them."""
    tests: list[dict[str, Any]] = [{"eq": value} for value in (*NUMBERS, *TEXTS, True, False)]
    tests += [{"exists": True}, {"exists": False}, {"nin": [1, "a"]}, {"gt": 0, "lt": 1}]
    tests += [
        {comparison: value}
        for comparison in COMPARISONS
        for value in (*NUMBERS, *(text for text in TEXTS if len(text) < MAX_ORDERED_CHARS))
    ]
    filters: list[dict[str, Any]] = [{"city": test} for test in tests]
    filters += [{field: {"gte": "1"}} for field in FIELDS]
    filters.append({"$or": [{"city": 1}, {"$not": {"a.b": {"exists": True}}}], "größe": {"ne": 1}})
    return filters


def test_items_pass_which_pass_in_the_files() -> None:
    random = np.random.default_rng(0)
    items = [
        StoredItem(row, str(row), None, None, None, None, None, None, some_metadata(random))
        for row in range(150)
    ]
    connection = sqlite3.connect(":memory:")
    create_tables(connection, None)
    insert_items(connection, items)
    fields = [filter_fields(item.metadata) for item in items]
    passed = 0
    for spec in some_filters():
        filter = parse_filter(spec)
        assert filter is not None
        found = {
            test: GrowingColumns(0).passing(
                test, len(items), partial(read_values, connection, test.field)
            )
            for test in leaves(filter)
        }
        expected = list(combine(filter, found, range(len(items))))
        assert [row for row, each in enumerate(fields) if passes(each, filter)] == expected, spec
        passed += len(expected)
    assert passed > 1000


def test_terms_and_extents_have_bounded_lengths_and_valid_names() -> None:
    fields = filter_fields({"a.b[]": "x" * 10_000, "": ["y", "y"]})
    assert all(key.isidentifier() and key.isascii() for key in fields.extents)
    assert max(map(len, [*fields.terms, *fields.extents.values()])) < 400
    # Of each field that it is there and its value, once.
    assert len(fields.terms) == 4
    assert len(terms_of(Equal("a", (Scalar("number", 1), Scalar("number", 1.0))))) == 1
    assert fields.extents[f"{field_key('')}_text_least"] == "y"
    assert filter_fields({"none": None, "object": {}, "list": []}) == ([], {})
    kept = "x" * (MAX_ORDERED_CHARS - 1)
    assert limit_of("city", Bound("gt", Scalar("text", kept))).text == kept
    with pytest.raises(InputError, match=r"'city'.*less than 256 characters.*got 256"):
        limit_of("city", Bound("gt", Scalar("text", kept + "x")))


A, B = field_key("a"), field_key("b")
THREE = number_text(3)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"a": "x"}, f'array_contains_any(terms, ["{A}:text:x"])'),
        ({"a": {"exists": True}}, f'array_contains_any(terms, ["{A}:"])'),
        ({"a": {"gt": 3}}, f'(extents["{A}_number_greatest"] > "{THREE}")'),
        (
            {"a": {"gte": 3, "lt": "q"}},
            f'(extents["{A}_number_greatest"] >= "{THREE}") and (extents["{A}_text_least"] < "q")',
        ),
        (
            {"a": {"ne": True}, "b": {"lte": 3}},
            f'(not (array_contains_any(terms, ["{A}:bool:1"]))) '
            f'and ((extents["{B}_number_least"] <= "{THREE}"))',
        ),
        (
            {"or": [{"a": ["x", "y"]}, {"b": {"exists": False}}]},
            f'(array_contains_any(terms, ["{A}:text:x", "{A}:text:y"])) '
            f'or (not (array_contains_any(terms, ["{B}:"])))',
        ),
    ],
)
def test_a_filter_is_an_expression(spec: dict[str, Any], expected: str) -> None:
    filter = parse_filter(spec)
    assert filter is not None
    assert expression(filter) == expected


def test_text_cannot_leave_its_quotes() -> None:
    assert quoted('a"b') == '"a\\"b"'
    assert quoted("a\\") == '"a\\\\"'
    assert quoted("\0\n\x7f") == '"\\x00\\x0a\\x7f"'
    assert quoted("it's 100 % über 🐕 [x] {y}") == '"it\'s 100 % über 🐕 [x] {y}"'
