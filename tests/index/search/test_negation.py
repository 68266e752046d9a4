"""Splits of English texts at their negations."""

from __future__ import annotations

import pytest

from aladin_index.search.negation import suggest_split
from aladin_index.search.results import SuggestedTerm


@pytest.mark.parametrize(
    ("text", "wanted", "negated"),
    [
        ("a dog without a leash", "a dog", [("leash", "without a leash")]),
        ("two people, no dog", "two people", [("dog", "no dog")]),
        ("Two People, NO Dog.", "Two People", [("Dog", "NO Dog")]),
        ("a street with no cars", "a street", [("cars", "with no cars")]),
        ("a beach but no people", "a beach", [("people", "but no people")]),
        ("a red car, not a truck", "a red car", [("truck", "not a truck")]),
        ("a man without his hat in the snow", "a man in the snow", [("hat", "without his hat")]),
        (
            "a dog without a red leash running on grass",
            "a dog running on grass",
            [("red leash", "without a red leash")],
        ),
        (
            "a boy without a pair of shoes, a ball",
            "a boy, a ball",
            [("pair of shoes", "without a pair of shoes")],
        ),
        (
            "a dog without a leash or a collar",
            "a dog",
            [("leash", "without a leash"), ("collar", "or a collar")],
        ),
        ("a room, no chairs, no table", "a room", [("chairs", "no chairs"), ("table", "no table")]),
    ],
)
def test_what_is_negated_becomes_a_part(
    text: str, wanted: str, negated: list[tuple[str, str]]
) -> None:
    assert suggest_split(text) == [
        SuggestedTerm(role="all", text=wanted, source=wanted),
        *(SuggestedTerm(role="not", text=part, source=source) for part, source in negated),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a dog on a leash",
        "a no parking sign",
        "a street with no parking sign",
        "without a leash",
        "no people on the beach",
        "a man who is not running",
        "a man without wearing a hat",
        "a dog, no longer young",
        "a dog without",
        "a notable knot",
        "a room" + ", no chair" * 8,  # more parts than a search takes
        "a dog without a leash, not running",
        "",
    ],
)
def test_other_texts_are_left_whole(text: str) -> None:
    assert suggest_split(text) is None
