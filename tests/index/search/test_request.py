"""The outside form of a query: its terms, options, boxes and the collection it searches."""

from __future__ import annotations

from typing import Any

import pytest

from aladin_index.search.options import SearchOptions
from aladin_index.search.request import SearchRequest, SearchTerm, check_box, parse_box

BOX = (0.0, 0.25, 1.0, 0.5)
DOG = SearchTerm(text="a dog")


def test_terms_have_their_roles_and_places_and_each_example_comes_once() -> None:
    request = SearchRequest(
        all=["a dog", SearchTerm(id="b", weight=2)], not_=[DOG], like=["c", "c"]
    )
    assert list(request.terms()) == [
        ("all", "all[0]", DOG),
        ("all", "all[1]", SearchTerm(id="b", weight=2)),
        ("not", "not[0]", DOG),
        ("like", "like", SearchTerm(id="c")),
    ]


def test_a_query_beside_terms_becomes_the_first_of_them() -> None:
    alone = SearchRequest("a dog", k=3)
    assert alone.with_query_as_term() is alone
    given = SearchRequest("a dog", image=b"x", box=BOX, all=["b"], like=["c"], k=3)
    expected = [DOG, SearchTerm(image=b"x", box=BOX), "b"]
    assert given.with_query_as_term() == SearchRequest(all=expected, like=["c"], k=3)


@pytest.mark.parametrize(
    ("asked", "held", "target"),
    [
        (SearchRequest("a"), ["images", "texts"], "images"),
        (SearchRequest("a"), ["texts"], "texts"),
        (SearchRequest("a", "texts"), ["images"], "texts"),
        (SearchRequest(image=b""), ["images", "texts"], "texts"),
        (SearchRequest(regions=b""), ["images", "texts"], "texts"),
        (SearchRequest(image=b""), ["images"], "images"),
        (SearchRequest(image=b"", box=BOX), ["images", "texts"], "images"),
        (SearchRequest(all=[SearchTerm(image=b"")]), ["images", "texts"], "images"),
    ],
)
def test_a_whole_photo_finds_texts_and_any_other_query_images(
    asked: SearchRequest, held: list[Any], target: str
) -> None:
    assert asked.target_in(held) == target


def test_options_and_boxes_are_read_from_a_request_or_a_text() -> None:
    assert SearchRequest("a", k=3, fusion=0.5).options() == SearchOptions(k=3, fusion=0.5)
    for box in (check_box([0, 0.25, 1, 0.5]), parse_box("0,.25,1,0.5")):
        assert box == BOX
        assert all(type(edge) is float for edge in box)
