import math

from aladin_index.items.filters import (
    And,
    Equal,
    Exists,
    Not,
    Or,
    Scalar,
    field_scalars,
    leaves,
    scalar,
)


def test_numbers_beyond_64_bits_become_floats() -> None:
    assert scalar(2**63 - 1) == Scalar("number", 2**63 - 1)
    assert scalar(2**63) == Scalar("number", float(2**63))
    assert scalar(-(10**400)) == Scalar("number", -math.inf)
    assert scalar({"a": 1}) is None
    assert scalar(math.nan) is None


def test_a_field_s_values_are_those_of_its_list() -> None:
    assert list(field_scalars("b")) == [Scalar("text", "b")]
    assert list(field_scalars([1, None, True, [2], {"c": 3}, "b"])) == [
        Scalar("number", 1),
        Scalar("bool", 1),
        Scalar("text", "b"),
    ]
    for nothing in (None, [], {}, {"c": 3}, [None]):
        assert list(field_scalars(nothing)) == []


def test_all_tests_of_a_tree_are_found() -> None:
    a, b, c = Exists("a"), Exists("b"), Equal("c", (Scalar("number", 1),))
    assert list(leaves(And((Not(a), Or((b, Not(And((c, a))))))))) == [a, b, c, a]
    assert list(leaves(c)) == [c]
