"""What a model gets of the service's answers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from pydantic import ValidationError

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SEARCH_ANSWER, SearchAnswer, SearchHit
from aladin_service.mcp.arguments import (
    MAX_K,
    ExplainArguments,
    SearchPhotosArguments,
    SimilarArguments,
)
from aladin_service.mcp.results import MAX_TEXT_CHARS, explanation, search_result
from aladin_service.search.answers import MappedRegion, MappedWord, WordMapsAnswer


def hit(number: int, **changes: Any) -> dict[str, Any]:
    """A hit as the service answers."""
    made: dict[str, Any] = {
        "id": f"photo-{number}",
        "rank": number,
        "score": 1.23456789,
        "per_word": 0.5,
        "probability": 0.87654321,
        "stages": {"match": {"rank": number, "score": 0.5}, "align": None},
        "uri": f"photo-{number}",
        "text": "a dog",
        "metadata": {"year": 2020},
        "evidence": None,
    }
    return made | changes


def answer(*hits: dict[str, Any], **changes: Any) -> SearchAnswer:
    """An answer of the service with these hits."""
    made: dict[str, Any] = {
        "hits": list(hits),
        "reranked": True,
        "fusion": 0.5,
        "candidates": 10,
        "generation": 1,
        "degraded": [],
        "no_match": False,
        "probabilities_reliable": True,
        "took_ms": {"decode": 0, "encode": 0, "retrieve": 0, "rerank": 0, "total": 0},
    }
    return SEARCH_ANSWER.validate_python(made | changes)


def test_a_hit_is_short_and_rounded() -> None:
    found = search_result(answer(hit(1)), "photos", SearchOptions(k=5))
    assert found.model_dump(mode="json", exclude_defaults=True) == {
        "found": "photos",
        "hits": [
            {
                "id": "photo-1",
                "rank": 1,
                "score": 1.234568,
                "probability": 0.876543,
                "text": "a dog",
                "metadata": {"year": 2020},
            }
        ],
        "no_match": False,
    }


def test_a_uri_of_its_own_is_told_and_a_long_text_cut() -> None:
    photo = hit(1, uri="https://example.org/1.jpg", text="x" * (MAX_TEXT_CHARS + 1))
    found = search_result(answer(photo), "photos", SearchOptions()).hits[0]
    assert found.uri == "https://example.org/1.jpg"
    assert found.text == "x" * (MAX_TEXT_CHARS - 1) + "…"
    kept = search_result(answer(hit(1, text="x" * MAX_TEXT_CHARS)), "photos", SearchOptions())
    assert kept.hits[0].text == "x" * MAX_TEXT_CHARS


def test_long_metadata_are_named_and_left_out() -> None:
    metadata = {"story": "x" * 5000, "year": 2020, "tags": ["a"] * 10}
    found = search_result(answer(hit(1, metadata=metadata)), "photos", SearchOptions()).hits[0]
    assert found.metadata == {"year": 2020, "tags": ["a"] * 10}
    assert found.omitted_metadata == ["story"]


@pytest.mark.parametrize(
    ("options", "hits", "following"),
    [
        (SearchOptions(k=2), 2, 2),
        (SearchOptions(k=2, offset=4), 2, 6),
        (SearchOptions(k=2, offset=4), 1, None),
        (SearchOptions(k=2), 0, None),
        (SearchOptions(k=2, offset=9_999), 2, None),  # beyond the largest offset
        (SearchOptions(k=2, min_probability=0.5), 1, 2),  # less likely hits were left out
        (SearchOptions(k=2, min_probability=0.5), 0, None),
    ],
)
def test_the_next_page(options: SearchOptions, hits: int, following: int | None) -> None:
    found = answer(*(hit(number) for number in range(1, hits + 1)))
    assert search_result(found, "photos", options).next_offset == following


def test_probabilities_that_are_not_reliable_are_not_shown() -> None:
    unsure = answer(
        hit(1),
        no_match=None,
        probabilities_reliable=False,
        unreliable_because="other_photos",
        degraded=["min_probability"],
    )
    found = search_result(unsure, "photos", SearchOptions())
    assert found.hits[0].probability is None
    assert found.no_match is None
    assert found.notes == [
        "this answer has no probabilities: the index's calibration was fitted on other data, to"
        " which most of these photos do not belong",
        "min_probability was not applied: the probabilities are not reliable",
    ]


def test_parts_and_words_of_a_hit_are_short() -> None:
    parts = [
        {"role": "all", "weight": 1.0, "text": "a dog", "id": None},
        {"role": "like", "weight": 0.75, "text": None, "id": "p7"},
    ]
    of_hit = [{"score": s, "match": 0.1, "align": None, "evidence": None} for s in (2.0, -1 / 3)]
    words = [{"field": "metadata.place", "words": ["zanzibar"]}, {"field": "uri", "words": ["x"]}]
    stages = hit(1)["stages"] | {"lexical": words}
    found = search_result(
        answer(hit(1, parts=of_hit, stages=stages), parts=parts), "photos", SearchOptions()
    )
    shown = found.model_dump(mode="json", exclude_defaults=True)
    assert shown["parts"] == [{"role": "all", "text": "a dog"}, {"role": "like", "id": "p7"}]
    assert shown["hits"][0]["parts"] == [2.0, -0.333333]
    assert shown["hits"][0]["found_in"] == {"metadata.place": ["zanzibar"], "uri": ["x"]}
    plain = search_result(
        answer(hit(1, stages=hit(1)["stages"] | {"lexical": []})), "photos", SearchOptions()
    )
    assert (plain.parts, plain.hits[0].parts, plain.hits[0].found_in) == (None, None, None)


def test_where_a_box_was_found_is_rounded() -> None:
    box, found = [0.0, 1 / 3, 1.0, 1.0], [0.0, 0.0, 2 / 3, 1.0]
    plain = search_result(answer(hit(1, found=found)), "photos", SearchOptions())
    assert plain.hits[0].found == (0.0, 0.0, 0.6667, 1.0)
    scores: dict[str, Any] = {"score": 1.0, "match": 0.1, "align": 0.5, "evidence": None}
    parts = [
        {"role": "all", "weight": 1.0, "text": "a dog", "id": None},
        {"role": "all", "weight": 1.0, "text": None, "id": "p7", "box": box},
    ]
    of_hit = [scores, scores | {"found": found}]
    several = search_result(answer(hit(1, parts=of_hit), parts=parts), "photos", SearchOptions())
    assert several.hits[0].found == (0.0, 0.0, 0.6667, 1.0)
    assert several.parts is not None
    assert [part.box for part in several.parts] == [None, (0.0, 1 / 3, 1.0, 1.0)]


def test_a_split_is_offered_as_the_arguments_that_make_it() -> None:
    suggestion = [
        {"role": "all", "text": "a dog", "source": "a dog"},
        {"role": "not", "text": "leash", "source": "without a leash"},
    ]
    (note,) = search_result(answer(suggestion=suggestion), "photos", SearchOptions()).notes
    assert note.endswith('search with query="a dog" and not=["leash"]')


def test_unknown_fields_and_a_lacking_stage_are_noted() -> None:
    odd = answer(unknown_fields=["yaer"], degraded=["rerank_timeout"], probabilities_reliable=None)
    assert search_result(odd, "photos", SearchOptions()).notes == [
        "no item has the metadata fields yaer; index_info lists those that exist",
        "ordered by the first stage only: there was no time for the second",
    ]


def test_every_field_of_a_hit_that_is_kept_has_the_service_s_value() -> None:
    kept = search_result(answer(hit(3)), "photos", SearchOptions()).hits[0]
    assert set(type(kept).model_fields) - {"omitted_metadata", "found_in"} <= {
        field.name for field in fields(SearchHit)
    }


def test_an_explanation_has_the_best_box_of_each_word() -> None:
    maps = WordMapsAnswer(
        text="a dog",
        match=0.25,
        align=0.7500000049,
        regions=[MappedRegion(box=None), MappedRegion(box=(0.0, 1 / 3, 0.5, 1.0))],
        words=[
            MappedWord(text="a", start=0, end=1, score=0.25, share=1 / 3, region=0, cosines=[0.2]),
            MappedWord(text="dog", start=2, end=5, score=0.5, share=2 / 3, region=1, cosines=[0.2]),
        ],
    )
    assert explanation("p", maps).model_dump(mode="json", exclude_defaults=True) == {
        "photo_id": "p",
        "text": "a dog",
        "align": 0.75,
        "match": 0.25,
        "words": [
            {"word": "a", "score": 0.25, "share": 0.3333},
            {"word": "dog", "score": 0.5, "share": 0.6667, "box": [0.0, 0.3333, 0.5, 1.0]},
        ],
    }


def test_arguments_become_options() -> None:
    given = {"query": "a dog", "k": "7", "offset": 14, "filter": {"year": 2020}, "sort": "-year"}
    arguments = SearchPhotosArguments.model_validate(given | {"min_probability": 0.5})
    assert arguments.options() == SearchOptions(
        k=7, offset=14, filter={"year": 2020}, sort="-year", min_probability=0.5
    )
    assert SimilarArguments(id="x").options() == SearchOptions()
    named = SearchPhotosArguments.model_validate({"query": "x", "lexical": 1})
    assert named.options() == SearchOptions(lexical=1.0)


def test_arguments_become_parts() -> None:
    given = {"query": "a dog", "and": ["snow"], "not": ["a leash"], "like": ["a", "b"]}
    assert SearchPhotosArguments.model_validate(given).parts() == {
        "also": ["snow"],
        "without": ["a leash"],
        "like": ["a", "b"],
    }
    assert not any(SimilarArguments(id="x").parts().values())
    for box in ([0, 0, 1], [0, 0, 1, 1.5], [0] * 5, "0,0,1,1"):
        with pytest.raises(ValidationError):
            SimilarArguments.model_validate({"id": "x", "box": box})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"query": ""},
        {"query": "a dog", "k": 0},
        {"query": "a dog", "k": MAX_K + 1},
        {"query": "a dog", "k": 1_000_000},
        {"query": "a dog", "offset": -1},
        {"query": "a dog", "offset": 10_001},
        {"query": "a dog", "min_probability": 1.5},
        {"query": "a dog", "filters": {}},
        {"query": "a dog", "filter": "year"},
        {"query": "a dog", "not": [""]},
        {"query": "a dog", "not_": ["a leash"]},
        {"query": "a dog", "like": ["x" * 5000]},
        {"query": "a dog", "lexical": 2},
        {"not": ["a dog"]},
    ],
)
def test_arguments_that_cannot_be_used(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SearchPhotosArguments.model_validate(given)


@pytest.mark.parametrize("given", [{}, {"query": "a dog", "text_id": "t"}])
def test_a_photo_is_explained_for_one_text(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="expected exactly one of query and text_id"):
        ExplainArguments.model_validate({"photo_id": "p"} | given)
