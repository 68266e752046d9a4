import math

import pytest

from aladin.errors import InputError
from index.filters import And, Bound, Equal, Not, Range, Scalar, parse_filter, scalar


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
        ({"a": {"gt": [1]}}, "'a': expected text, number or bool, got list"),
        ({"a": {"gt": True}}, "'a': gt takes a number or a text"),
        ({"a": math.nan}, "'a': expected a finite number"),
        ({"a": 10**400}, "'a': expected a finite number"),
        ({"a": "\ud800"}, "not valid Unicode"),
        ({"\ud800": 1}, "not valid Unicode"),
    ],
)
def test_any_other_form_is_refused_by_field(spec: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_filter(spec)


def test_numbers_beyond_64_bits_become_floats() -> None:
    assert scalar(2**63 - 1) == Scalar("number", 2**63 - 1)
    assert scalar(2**63) == Scalar("number", float(2**63))
    assert scalar(-(10**400)) == Scalar("number", -math.inf)
    assert scalar({"a": 1}) is None
