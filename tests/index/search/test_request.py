"""The outside form of a query: what is one, what it asks for, and what every door refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aladin_index.search.options import SearchOptions
from aladin_index.search.request import (
    MAX_EXAMPLES,
    SearchRequest,
    SearchTerm,
    check_box,
    decode_base64,
    one_of,
    parse_box,
)
from aladin_network.errors import InputError

BOX = (0.0, 0.25, 1.0, 0.5)
DOG = SearchTerm(text="a dog")


@pytest.mark.parametrize(
    "query",
    [
        {"text": ""},
        {"image": b"", "box": BOX},
        {"id": "a", "box": BOX},
        {"regions": b"", "box": BOX},
        {"all": ["a dog", SearchTerm(id="b", box=BOX)], "not_": [DOG]},
        {"all": [DOG] * 8},
        {"like": ["a"] * MAX_EXAMPLES, "not_": ["a car"]},
    ],
)
def test_one_query_or_its_parts_are_accepted(query: dict[str, Any]) -> None:
    SearchRequest(**query).check_query()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "expected exactly one of text, image, id, regions, or the terms of a query, got none"),
        ({"text": "a", "id": "b"}, "got text and id"),
        ({"image": b"", "regions": b""}, "got image and regions"),
        ({"all": [], "not_": [], "like": []}, "got none"),
        ({"text": "a", "box": BOX}, "box: expected a photo beside it, by image or id, got text"),
        ({"id": "a", "box": (1, 0, 0, 1)}, "box: expected x0 < x1"),
        ({"not_": [DOG]}, "not: expected a term in all or like beside it, got none"),
        ({"text": "a", "not_": [DOG]}, "got text beside all, not or like; as a term it belongs"),
        ({"all": [DOG], "id": "x"}, "got id beside all, not or like; as a term it belongs"),
        ({"all": [DOG], "box": BOX}, "got box beside all, not or like"),
        ({"all": [DOG], "regions": b""}, "got regions beside all, not or like$"),
        ({"all": [SearchTerm()]}, "all.0.: expected exactly one of text, image, id, got none"),
        ({"all": [DOG, SearchTerm(text="a", id="x")]}, "all.1.: .*got text and id"),
        ({"like": ["a"], "not_": [SearchTerm(text="a", box=BOX)]}, "not.0.: box: expected a photo"),
        ({"all": [SearchTerm(text="a", weight=0)]}, "all.0.: expected a weight of more than 0"),
        ({"all": [DOG] * 6, "not_": [DOG] * 3}, "all, not: expected at most 8 terms, got 9"),
        ({"like": ["a"] * 65}, "like: expected at most 64 ids, got 65"),
    ],
)
def test_other_requests_are_refused(query: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchRequest(**query).check_query()


def test_terms_are_parts_with_their_roles_and_places_and_each_example_once() -> None:
    request = SearchRequest(
        all=["a dog", SearchTerm(id="b", weight=2)], not_=[DOG], like=["c", "c"]
    )
    assert list(request.terms()) == [
        ("all", "all[0]", DOG),
        ("all", "all[1]", SearchTerm(id="b", weight=2)),
        ("not", "not[0]", DOG),
        ("like", "like", SearchTerm(id="c")),
    ]


def test_a_query_beside_parts_becomes_the_first_of_them() -> None:
    alone = SearchRequest("a dog", k=3)
    assert alone.with_query_as_term() is alone
    given = SearchRequest("a dog", image=b"x", box=BOX, all=["b"], like=["c"], k=3)
    expected = [DOG, SearchTerm(image=b"x", box=BOX), "b"]
    assert given.with_query_as_term() == SearchRequest(all=expected, like=["c"], k=3)
    for query in ({"text": "a"}, {"image": b"", "id": "b"}, {}):
        with pytest.raises(InputError, match="box: expected one photo beside it, by image or id"):
            SearchRequest(**query, box=BOX, like=["c"]).with_query_as_term()


@pytest.mark.parametrize(
    ("request_", "held", "target"),
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
    request_: SearchRequest, held: list[Any], target: str
) -> None:
    assert request_.target_in(held) == target


def test_the_options_are_those_of_the_request() -> None:
    assert SearchRequest("a", k=3, fusion=0.5).options() == SearchOptions(k=3, fusion=0.5)


def test_a_box_is_four_fractions() -> None:
    for box in (check_box([0, 0.25, 1, 0.5]), parse_box("0,.25,1,0.5")):
        assert box == BOX
        assert all(type(edge) is float for edge in box)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ([0, 0, 1], r"expected x0, y0, x1, y1 in fractions .* got \[0, 0, 1\]"),
        ([0, 0, 1, 1, 1], "expected x0, y0, x1, y1 in fractions"),
        ([0, 0, 1, math.nan], "expected x0, y0, x1, y1 in fractions"),
        ([0, 0, 1, math.inf], "expected x0, y0, x1, y1 in fractions"),
        ([0, 0, 1, 1.01], "expected x0, y0, x1, y1 in fractions"),
        ([-0.1, 0, 1, 1], "expected x0, y0, x1, y1 in fractions"),
        ([0.5, 0, 0.5, 1], r"expected x0 < x1 and y0 < y1, got \[0.5, 0, 0.5, 1\]"),
        ([0, 0.7, 1, 0.2], "expected x0 < x1 and y0 < y1"),
        ("0,0,1", "expected x0, y0, x1, y1 in fractions"),
        ("0,0,1,x", "expected x0,y0,x1,y1, got '0,0,1,x'"),
    ],
)
def test_other_boxes_are_refused_by_their_name(box: Any, message: str) -> None:
    check = parse_box if isinstance(box, str) else check_box
    with pytest.raises(InputError, match=f"term: {message}"):
        check(box, "term")


def test_one_of_several_values_is_named() -> None:
    assert one_of({"text": None, "id": ""}) == "id"
    with pytest.raises(InputError, match="expected exactly one of text, id, got text and id"):
        one_of({"text": "", "id": ""})


def test_a_file_is_base64_or_a_data_url() -> None:
    assert decode_base64("data:image/png;base64,AP8=") == decode_base64("AP8") == b"\x00\xff"
    with pytest.raises(ValueError, match="not base64, nor a data URL"):
        decode_base64("data:image/png,AP8=")
