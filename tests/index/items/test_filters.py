import math
import re
from typing import Any

import pytest

from aladin_index.items.filters import (
    MAX_DEPTH,
    MAX_TESTS,
    MAX_VALUES,
    And,
    Bound,
    Equal,
    Not,
    Range,
    Scalar,
    parse_filter,
    without_field,
)
from aladin_network.errors import InputError


def test_every_form_is_read() -> None:
    assert parse_filter(
        {
            "city": "Pisa",
            "year": [2019, 2020.5],
            "size": {"gte": 3, "lt": 9},
            "draft": {"ne": True},
        }
    ) == And(
        (
            Equal("city", (Scalar("text", "Pisa"),)),
            Equal("year", (Scalar("number", 2019), Scalar("number", 2020.5))),
            Range("size", (Bound("gte", Scalar("number", 3)), Bound("lt", Scalar("number", 9)))),
            Not(Equal("draft", (Scalar("bool", 1),))),
        )
    )
    assert parse_filter({}) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"a": None}, "'a': expected text, number or bool, got null"),
        ({"a": []}, "'a': expected at least one value"),
        ({"a": {}}, "'a': expected a comparison"),
        ({"a": [["b"]]}, "'a': expected text, number or bool, got list"),
        (
            {"a": {"like": "b"}},
            "'a': expected one of eq, ne, in, nin, gt, gte, lt, lte, exists, got 'like'",
        ),
        ({"a": {"gt": True}}, "'a': gt takes a number or a text"),
        ({"a": math.nan}, "'a': expected a finite number"),
        ({"a": 10**400}, "'a': expected a finite number"),
        ({"a": "\ud800"}, "not valid Unicode"),
        ({"\ud800": 1}, "not valid Unicode"),
        ({"a": {"in": "b"}}, "'a': in takes a list of values"),
        ({"a": {"in": []}}, "'a': expected at least one value"),
        ({"a": {"exists": 1}}, "'a': exists takes true or false"),
        ({"and": []}, "'and': expected at least one value"),
        ({"$and": []}, "'$and': expected a list of at least one filter"),
        ({"$or": {"a": 1}}, "'$or': expected a list of at least one filter"),
        ({"or": [{"a": 1}, 2]}, "'or': expected an object of tests, got int"),
        ({"or": [{"a": 1}, {}]}, "'or': expected at least one test, got {}"),
        ({"$not": [{"a": 1}]}, "'$not': expected an object of tests, got list"),
        ({"not": {"gte": 3}}, "'not': write \"$not\" for the opposite"),
    ],
)
def test_any_other_form_is_refused_by_field(spec: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        parse_filter(spec)


@pytest.mark.parametrize(
    ("spec", "same"),
    [
        ({"a": 1, "b": 2}, {"and": [{"a": 1}, {"b": 2}]}),
        ({"a": 1}, {"a": {"eq": 1}}),
        ({"a": [1, 2]}, {"a": {"in": [1, 2]}}),
        ({"not": {"a": 1}}, {"a": {"ne": 1}}),
        ({"not": {"a": [1, 2]}}, {"a": {"nin": [1, 2]}}),
        ({"not": {"a": {"exists": True}}}, {"a": {"exists": False}}),
        (
            {"$or": [{"a": {"$gte": 1}}, {"$not": {"b": {"$ne": 2}}}]},
            {"or": [{"a": {"gte": 1}}, {"not": {"b": {"ne": 2}}}]},
        ),
        ({"not": {"in": ["a"], "year": 3}}, {"$not": {"in": ["a"], "year": 3}}),
    ],
    ids=str,
)
def test_equivalent_filters_parse_alike(spec: dict[str, object], same: dict[str, object]) -> None:
    assert parse_filter(spec) == parse_filter(same)
    assert hash(parse_filter(spec)) == hash(parse_filter(same))


def test_fields_may_have_an_operator_s_name() -> None:
    one = (Scalar("number", 1),)
    for name in ("and", "or", "not", "in", "$gte", "$year"):
        assert parse_filter({name: 1}) == Equal(name, one)
        assert parse_filter({name: [1]}) == Equal(name, one)
        assert parse_filter({name: {"$in": [1]}}) == Equal(name, one)


def test_a_filter_is_only_so_large() -> None:
    def nested(levels: int) -> dict[str, object]:
        return {"a": 1} if levels == 1 else {"not": nested(levels - 1)}

    parse_filter(nested(MAX_DEPTH))
    with pytest.raises(InputError, match="filter 'not': expected at most 16 levels"):
        parse_filter(nested(MAX_DEPTH + 1))
    endless: dict[str, object] = {}
    endless["and"] = [endless]
    with pytest.raises(InputError, match="at most 16 levels"):
        parse_filter(endless)
    parse_filter({"or": [{"a": number} for number in range(MAX_TESTS)]})
    with pytest.raises(InputError, match="filter field 'a': expected at most 100 tests"):
        parse_filter({"or": [{"a": number} for number in range(MAX_TESTS + 1)]})
    half = list(range(MAX_VALUES // 2))
    parse_filter({"a": half, "b": {"nin": half}})
    with pytest.raises(InputError, match="filter field 'b': expected at most 1000 values"):
        parse_filter({"a": half, "b": {"nin": [*half, -1]}})


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        ({}, {}),
        ({"a": 1}, {}),
        ({"b": 1}, {"b": 1}),
        ({"a": {"gte": 1, "ne": 2}, "b": 1}, {"b": 1}),
        ({"and": [{"a": 1, "b": 1}, {"and": [{"not": {"a": 2}}, {"c": 1}]}]}, {"b": 1, "c": 1}),
        ({"or": [{"a": 1}, {"a": {"exists": False}}], "b": 1}, {"b": 1}),
        # Tied to another field: whoever passes it has a certain "a", or a certain "b".
        ({"or": [{"a": 1}, {"b": 1}], "a": 3}, {"or": [{"a": 1}, {"b": 1}]}),
        ({"not": {"a": 1, "b": 1}}, {"not": {"a": 1, "b": 1}}),
    ],
)
def test_a_filter_is_taken_without_a_field(spec: dict[str, Any], left: dict[str, Any]) -> None:
    assert without_field(parse_filter(spec), "a") == parse_filter(left)
