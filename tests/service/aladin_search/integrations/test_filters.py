"""Filters of other libraries, translated without the libraries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aladin_index.items.filters import parse_filter
from aladin_network.errors import InputError
from aladin_search.integrations.filters import (
    haystack_filter,
    langchain_filter,
    llama_index_filter,
)


def same(translated: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check that two filters test the same."""
    assert parse_filter(translated) == parse_filter(expected)


def comparison(comparator: str, value: Any, attribute: str = "year") -> Any:
    """A comparison of LangChain."""
    return SimpleNamespace(comparator=comparator, attribute=attribute, value=value)


def operation(operator: str, *arguments: Any) -> Any:
    """An operation of LangChain."""
    return SimpleNamespace(operator=operator, arguments=list(arguments))


def metadata(operator: str, value: Any, key: str = "year") -> Any:
    """A filter of LlamaIndex."""
    return SimpleNamespace(key=key, value=value, operator=operator)


def filters(condition: str | None, *parts: Any) -> Any:
    """Filters of LlamaIndex."""
    return SimpleNamespace(filters=list(parts), condition=condition)


def condition(field: str, operator: str, value: Any) -> dict[str, Any]:
    """A comparison of Haystack."""
    return {"field": field, "operator": operator, "value": value}


@pytest.mark.parametrize("comparator", ["eq", "ne", "gt", "gte", "lt", "lte"])
def test_comparisons_of_langchain(comparator: str) -> None:
    same(langchain_filter(comparison(comparator, 2020)), {"year": {comparator: 2020}})


def test_operations_of_langchain() -> None:
    given = operation(
        "or",
        operation("and", comparison("gte", 3), comparison("in", ["a", "b"], "tags")),
        operation("not", comparison("nin", [1], "n")),
    )
    expected = {
        "or": [
            {"and": [{"year": {"gte": 3}}, {"tags": {"in": ["a", "b"]}}]},
            {"not": {"n": {"nin": [1]}}},
        ]
    }
    same(langchain_filter(given), expected)
    assert langchain_filter(None) == {}
    assert langchain_filter({"year": 3}) == {"year": 3}
    day = {"type": "date", "date": "2024-05-01"}
    same(langchain_filter(comparison("gt", day)), {"year": {"gt": "2024-05-01"}})


@pytest.mark.parametrize("comparator", ["contain", "like"])
def test_unsupported_comparators_of_langchain(comparator: str) -> None:
    with pytest.raises(InputError) as raised:
        langchain_filter(comparison(comparator, "a"))
    assert str(raised.value) == (
        f"filter field 'year': the operator '{comparator}' is not supported; expected one of eq, "
        "ne, gt, gte, lt, lte, in, nin"
    )


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("==", 3, {"eq": 3}),
        ("!=", "a", {"ne": "a"}),
        (">", 3, {"gt": 3}),
        (">=", 3, {"gte": 3}),
        ("<", 3.5, {"lt": 3.5}),
        ("<=", 3, {"lte": 3}),
        ("in", [1, 2], {"in": [1, 2]}),
        ("nin", ["a"], {"nin": ["a"]}),
        ("any", ["a", "b"], {"in": ["a", "b"]}),
        ("contains", "a", {"eq": "a"}),
        ("is_empty", None, {"exists": False}),
    ],
)
def test_operators_of_llama_index(operator: str, value: Any, expected: dict[str, Any]) -> None:
    same(llama_index_filter(filters("and", metadata(operator, value))), {"year": expected})


def test_conditions_of_llama_index() -> None:
    one, two = metadata("==", 1, "a"), metadata("==", 2, "b")
    same(llama_index_filter(filters("or", one, two)), {"or": [{"a": 1}, {"b": 2}]})
    same(llama_index_filter(filters(None, one, two)), {"and": [{"a": 1}, {"b": 2}]})
    # None of the parts passes, as in LlamaIndex's own stores.
    same(llama_index_filter(filters("not", one, two)), {"not": {"or": [{"a": 1}, {"b": 2}]}})
    same(
        llama_index_filter(filters("and", one, filters("not", two))),
        {"and": [{"a": 1}, {"not": {"b": 2}}]},
    )
    same(
        llama_index_filter(filters("and", metadata("all", ["x", "y"], "tags"))),
        {"and": [{"tags": "x"}, {"tags": "y"}]},
    )
    assert llama_index_filter(filters("and")) == {}
    assert llama_index_filter(None) == {}
    with pytest.raises(InputError, match="at least one filter"):
        llama_index_filter(filters("or"))


@pytest.mark.parametrize("operator", ["text_match", "text_match_insensitive"])
def test_unsupported_operators_of_llama_index(operator: str) -> None:
    with pytest.raises(InputError, match=f"'year': the operator '{operator}' is not supported"):
        llama_index_filter(filters("and", metadata(operator, "a")))
    with pytest.raises(InputError, match="expected MetadataFilters, got int"):
        llama_index_filter(3)


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("==", 3, {"eq": 3}),
        ("!=", "a", {"ne": "a"}),
        (">", 3, {"gt": 3}),
        (">=", "2020-01-01", {"gte": "2020-01-01"}),
        ("<", 3.5, {"lt": 3.5}),
        ("<=", 3, {"lte": 3}),
        ("in", [1, 2], {"in": [1, 2]}),
        ("not in", ["a"], {"nin": ["a"]}),
        ("==", None, {"exists": False}),
        ("!=", None, {"exists": True}),
    ],
)
@pytest.mark.parametrize("field", ["meta.year", "year"])
def test_comparisons_of_haystack(
    field: str, operator: str, value: Any, expected: dict[str, Any]
) -> None:
    same(haystack_filter(condition(field, operator, value)), {"year": expected})


def test_logic_of_haystack() -> None:
    one, two = condition("meta.a", "==", 1), condition("meta.b", "==", 2)
    for operator, expected in (
        ("AND", {"and": [{"a": 1}, {"b": 2}]}),
        ("OR", {"or": [{"a": 1}, {"b": 2}]}),
        ("NOT", {"not": {"and": [{"a": 1}, {"b": 2}]}}),
    ):
        same(haystack_filter({"operator": operator, "conditions": [one, two]}), expected)
    nested = {"operator": "AND", "conditions": [one, {"operator": "NOT", "conditions": [two]}]}
    same(haystack_filter(nested), {"and": [{"a": 1}, {"not": {"b": 2}}]})
    assert haystack_filter(None) == {}
    assert haystack_filter({}) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            condition("meta.a", "like", 1),
            "the operator 'like' is not supported; expected one of ==",
        ),
        (condition("content", "==", "a"), "filter field 'content': expected metadata, such as"),
        ({"operator": "XOR", "conditions": [{}]}, "expected AND, OR or NOT, got 'XOR'"),
        ({"operator": "AND", "conditions": []}, "filter AND: expected a list of at least one"),
        ({"field": "meta.a", "operator": "=="}, "expected the keys field, operator, value, got"),
        ({"year": 3}, "expected the keys operator, conditions, got year"),
        (condition("meta.a", ">", None), "expected text, number or bool, got null"),
        (condition("meta.a", "in", 3), "in takes a list of values"),
        ({"operator": "AND", "conditions": [3]}, "expected a dictionary, got int"),
    ],
)
def test_what_haystack_may_not_say(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        haystack_filter(given)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["and", "or", "not", "eq", "a.b", "meta"])
def test_fields_named_like_operators(name: str) -> None:
    expected = {name: {"$eq": 1}}
    same(langchain_filter(comparison("eq", 1, name)), expected)
    same(llama_index_filter(filters("and", metadata("==", 1, name))), expected)
    same(haystack_filter(condition(f"meta.{name}", "==", 1)), expected)
    parsed: Any = parse_filter(haystack_filter(condition(f"meta.{name}", "==", 1)))
    assert parsed.field == name
