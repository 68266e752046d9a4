"""Options, queries and boxes that are refused, by what the error says."""

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
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import InputError, ShapeError
from tests.index.searching import run_search

BOX = (0.0, 0.25, 1.0, 0.5)
DOG = SearchTerm(text="a dog")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k: expected at least 1, got 0"),
        ({"offset": -1}, "offset: expected at least 0, got -1"),
        ({"candidates": 0}, "candidates: expected at least 1 or exhaustive, got 0"),
        ({"candidates": "some"}, "candidates: expected at least 1 or exhaustive, got some"),
        ({"fusion": 1.5}, "fusion: expected 0 to 1, got 1.5"),
        ({"fusion": -0.5}, "fusion: expected 0 to 1, got -0.5"),
        ({"fusion": math.nan}, "fusion: expected 0 to 1, got nan"),
        ({"timeout_ms": 0}, "timeout_ms: expected more than 0"),
        ({"min_probability": 1.5}, "min_probability: expected 0 to 1, got 1.5"),
        ({"min_probability": -0.5}, "min_probability: expected 0 to 1, got -0.5"),
        ({"min_probability": 0.5}, "min_probability: the index is not calibrated"),
        ({"sort": ""}, "sort: expected the name of a field"),
        ({"sort": "-"}, "sort: expected the name of a field"),
        ({"filter": {"a": None}}, "filter field 'a'"),
        ({"explain": True}, "explain: expected the query's text"),
        ({"explain": True, "text": "two"}, "the query has 9 words, its text 1"),
        ({"lexical": 0.5}, "lexical: expected a query of one text, got none"),
    ],
)
def test_impossible_options(
    searcher: TwoStageSearcher, options: dict[str, Any], message: str
) -> None:
    query = searcher.stored_query("text 0").encoding
    with pytest.raises(InputError, match=message):
        run_search(searcher, query, "text", "images", **{"k": 3} | options)


def test_options_at_their_bounds_are_accepted() -> None:
    SearchOptions(k=1, offset=0, candidates=1, fusion=0, timeout_ms=1e-9, sort="-x").check()
    SearchOptions(candidates="exhaustive", fusion=1, min_probability=1, lexical=0).check()


@pytest.mark.parametrize(
    ("terms", "options", "message"),
    [
        ([("not", "text 1", 1.0)], {}, "cancel each other"),
        ([("all", "photo 1", 1.0), ("all", "photo 1", -1.0)], {}, "cancel each other"),
        ([("all", "text 1", 1.0)], {"min_probability": 0.5}, "not calibrated|no probability"),
        ([("all", "text 1", 1.0)], {"lexical": 1.0}, "a query of one text, got several"),
    ],
)
def test_impossible_terms(
    searcher: TwoStageSearcher, terms: list[Any], options: dict[str, Any], message: str
) -> None:
    query = [searcher.stored_query(n)._replace(role=role, weight=w) for role, n, w in terms]
    with pytest.raises(InputError, match=message):
        searcher.search(tuple(query), "images", SearchOptions(**options))


def test_a_query_of_other_dimensions(searcher: TwoStageSearcher) -> None:
    encoding = searcher.stored_query("photo 1").encoding
    two = encoding.concatenate([encoding, encoding])
    with pytest.raises(ShapeError, match=r"embedding \(1, 16\), got \(2, 16\)"):
        run_search(searcher, two, "image", "texts", k=1)
    narrow = encoding._replace(tokens=encoding.tokens[..., :7])
    with pytest.raises(ShapeError, match=r"expected shape tokens \(1, any, 8\)"):
        run_search(searcher, narrow, "image", "texts", k=1)


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
def test_requests_that_are_no_query(query: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchRequest(**query).check_query()


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
def test_requests_of_one_query_or_its_terms_are_accepted(query: dict[str, Any]) -> None:
    SearchRequest(**query).check_query()


@pytest.mark.parametrize("query", [{"text": "a"}, {"image": b"", "id": "b"}, {}])
def test_a_box_beside_terms_without_one_photo(query: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="box: expected one photo beside it, by image or id"):
        SearchRequest(**query, box=BOX, like=["c"]).with_query_as_term()


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ([0, 0, 1], r"expected x0, y0, x1, y1 in fractions .* got \[0, 0, 1\]"),
        ([0, 0, 1, 1, 1], "expected x0, y0, x1, y1 in fractions"),
        ([0, 0, 1, math.nan], "expected x0, y0, x1, y1 in fractions"),
        ([0, 0, 1, 1.01], "expected x0, y0, x1, y1 in fractions"),
        ([-0.1, 0, 1, 1], "expected x0, y0, x1, y1 in fractions"),
        ([0.5, 0, 0.5, 1], r"expected x0 < x1 and y0 < y1, got \[0.5, 0, 0.5, 1\]"),
        ([0, 0.7, 1, 0.2], "expected x0 < x1 and y0 < y1"),
        ("0,0,1", "expected x0, y0, x1, y1 in fractions"),
        ("0,0,1,x", "expected x0,y0,x1,y1, got '0,0,1,x'"),
    ],
)
def test_other_boxes_by_their_name(box: Any, message: str) -> None:
    check = parse_box if isinstance(box, str) else check_box
    with pytest.raises(InputError, match=f"term: {message}"):
        check(box, "term")


def test_several_values_and_other_files() -> None:
    assert one_of({"text": None, "id": ""}) == "id"
    with pytest.raises(InputError, match="expected exactly one of text, id, got text and id"):
        one_of({"text": "", "id": ""})
    assert decode_base64("data:image/png;base64,AP8=") == decode_base64("AP8") == b"\x00\xff"
    with pytest.raises(ValueError, match="not base64, nor a data URL"):
        decode_base64("data:image/png,AP8=")
