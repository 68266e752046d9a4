"""Counts of values among the nearest items, against the hits of searches, one by one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from aladin_index.search.options import SearchOptions
from aladin_network.types import Target
from tests.index.search.conftest import Known

PISA, EARLY = {"place": "Pisa"}, {"n": {"lt": 20}}


def nearest(known: Known, query_id: str, target: Target, size: int, **filter: Any) -> Counter[Any]:
    """The reference: counts by field and value among as many hits of the first stage."""
    query = known.searcher.stored_query(query_id)
    options = SearchOptions(k=size, candidates=size, rerank=False, filter=filter)
    hits = known.searcher.search(query, target, options).hits
    return Counter(pair for hit in hits for pair in hit.metadata.items())


def facets_of(known: Known, query_id: str, target: Target, **options: Any) -> dict[str, Any]:
    query = known.searcher.stored_query(query_id)
    asked = SearchOptions(facets=["place", "n", "none"], **options)
    facets = known.searcher.search(query, target, asked).facets
    assert facets is not None
    return {
        name: (facet.among, {each.value: each.count for each in facet.values})
        for name, facet in facets.items()
    }


@pytest.mark.parametrize(
    "paging", [{}, {"k": 3, "offset": 9}, {"rerank": False}, {"candidates": 7}, {"sort": "n"}]
)
@pytest.mark.parametrize(
    ("query_id", "target"), [("t1", "images"), ("p1", "images"), ("p1", "texts")]
)
def test_values_are_counted_among_the_nearest_whatever_page_is_shown(
    known: Known, query_id: str, target: Target, paging: dict[str, Any]
) -> None:
    found = facets_of(known, query_id, target, filter={**PISA, **EARLY}, **paging)
    size = paging.get("candidates", 25)
    of_n = nearest(known, query_id, target, size, **PISA)
    of_place = nearest(known, query_id, target, size, **EARLY)
    expected = {
        "place": {value: count for (name, value), count in of_place.items() if name == "place"},
        "n": {value: count for (name, value), count in of_n.items() if name == "n"},
    }
    assert {name: found[name][1] for name in expected} == expected
    assert sum(found["place"][1].values()) <= found["place"][0] <= size
    assert found["n"][0] == sum(expected["n"].values())
    assert found["none"][1] == {}


def test_what_a_word_finds_is_counted_too_and_none_without_fields(known: Known) -> None:
    query = known.searcher.stored_query("t1")._replace(
        text="Zanzibar", own_id=None, is_stored=False
    )
    options = SearchOptions(lexical=1.0, candidates=1, k=1, facets=["place"])
    facets = known.searcher.search(query, "images", options).facets
    assert facets is not None
    having = known.searcher.search(
        query, "images", SearchOptions(k=50, filter={"place": "Zanzibar"})
    )
    counted = {each.value: each.count for each in facets["place"].values}
    assert counted["Zanzibar"] == len(having.hits)
    assert facets["place"].among <= len(having.hits) + 1
    assert known.searcher.search(query, "images", SearchOptions(k=1)).facets is None
