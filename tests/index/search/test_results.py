"""Answers as dataclasses and as JSON: the searcher validates nothing, readers of JSON do."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import (
    SEARCH_ANSWER,
    Evidence,
    HitStages,
    SearchAnswer,
    SearchHit,
    Stage,
    TookMs,
)
from aladin_index.search.searcher import TwoStageSearcher
from tests.index.searching import assert_typed

BOX = (0.0, 0.25, 0.5, 1.0)


@pytest.fixture
def answer() -> SearchAnswer:
    """An answer with one hit and its evidence."""
    word = Evidence(token="dog", start=2, end=5, region=3, box=BOX, score=0.5, share=1.0)
    hit = SearchHit(
        id="photo 1",
        rank=1,
        score=0.75,
        per_word=0.25,
        stages=HitStages(match=Stage(rank=2, score=0.125), align=None),
        uri="a.png",
        text=None,
        metadata={"year": 2020, "tags": ["a"], "length": float("nan")},
        size_px=(4, 3),
        evidence=[word],
    )
    return SearchAnswer(
        hits=[hit],
        reranked=True,
        fusion=0.5,
        candidates=8,
        generation=3,
        degraded=[],
        took_ms=TookMs(decode=0.0, encode=1.5, retrieve=0.25, rerank=0.5, total=2.25),
    )


def test_the_json_has_every_field_in_order_and_no_nan(answer: SearchAnswer) -> None:
    took_ms = '{"decode":0.0,"encode":1.5,"total":2.25,"retrieve":0.25,"rerank":0.5}'
    word = (
        '{"token":"dog","start":2,"end":5,"region":3,"box":[0.0,0.25,0.5,1.0],"score":0.5,'
        '"share":1.0}'
    )
    hit = (
        '{"id":"photo 1","rank":1,"score":0.75,"per_word":0.25,"probability":null,'
        '"stages":{"match":{"rank":2,"score":0.125},"align":null,"lexical":null},"uri":"a.png","text":null,'
        '"metadata":{"year":2020,"tags":["a"],"length":null},"size_px":[4,3],'
        f'"evidence":[{word}],"found":null,"region_evidence":null,"terms":null,'
        '"stack":null}'
    )
    assert SEARCH_ANSWER.dump_json(answer).decode() == (
        f'{{"hits":[{hit}],"reranked":true,"fusion":0.5,"lexical":0.0,"candidates":8,"generation":3,'
        '"degraded":[],"no_match":null,"probabilities_reliable":null,'
        f'"unreliable_because":null,"unknown_fields":[],"terms":null,"read":[],"searched":null,"warnings":[],"facets":null,"suggestion":null,"took_ms":{took_ms}}}'
    )


def test_json_and_pickles_are_read_as_the_answer_that_they_were_written_from(
    answer: SearchAnswer,
) -> None:
    finite = replace(answer, hits=[replace(answer.hits[0], metadata={"year": 2020})])
    fields = json.loads(SEARCH_ANSWER.dump_json(finite))
    assert SEARCH_ANSWER.validate_python(fields) == pickle.loads(pickle.dumps(finite)) == finite
    fields["new"] = fields["hits"][0]["new"] = 1  # of a newer service
    assert SEARCH_ANSWER.validate_python(fields) == finite


def test_the_values_of_an_explained_search_have_the_types_of_their_fields(
    searcher: TwoStageSearcher,
) -> None:
    """Nothing converts NumPy's numbers on the way out: the searcher itself has to."""
    query = searcher.stored_query("text 0")
    found = searcher.search(query, "images", SearchOptions(k=5, explain=True))
    assert [bool(hit.evidence) for hit in found.hits] == [True] * 5
    assert_typed(found)
