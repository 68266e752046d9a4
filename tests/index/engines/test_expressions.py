"""Filters as Milvus reads them; what they let through is tested on the server."""

from __future__ import annotations

from typing import Any

import pytest

from aladin_index.engines.filter_fields import field_key, number_text
from aladin_index.engines.rows import expression, quoted
from aladin_index.items.filters import parse_filter
from aladin_network.errors import InputError

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


def test_a_text_that_is_longer_than_what_is_kept_is_refused() -> None:
    filter = parse_filter({"a": {"gt": "x" * 256}})
    assert filter is not None
    with pytest.raises(InputError, match="field 'a': expected a text of less than 256 characters"):
        expression(filter)
