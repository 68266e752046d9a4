"""Answers as plain text: the words of the evidence, the last line about a set, reasons."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from aladin_index.search.results import (
    Evidence,
    HitStages,
    SearchAnswer,
    SearchHit,
    Stage,
    SuggestedTerm,
    TookMs,
)
from aladin_network.calibration.calibration import Unreliable
from aladin_service.reports.tables import answer_lines, unreliable_reason


def answer(**facts: Any) -> SearchAnswer:
    took_ms = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
    common: dict[str, Any] = {"hits": [], "reranked": True, "fusion": 1.0, "candidates": 1}
    return SearchAnswer(**{**common, **facts}, generation=1, degraded=[], took_ms=took_ms)


def test_the_pieces_of_a_word_are_one_line_with_their_sum() -> None:
    pieces = [("a", 0, 1, 0.1), ("d", 2, 0, 0.2), ("alm", 3, 2, 0.3), ("atian", 6, 0, -0.1)]
    evidence = [
        Evidence(token=token, start=at, end=at + len(token), region=n, box=None, score=s, share=s)
        for token, at, n, s in pieces
    ]
    stages = HitStages(match=Stage(rank=1, score=0.4), align=Stage(rank=1, score=0.5))
    scores: dict[str, Any] = {"rank": 1, "score": 0.5, "per_word": 0.1, "stages": stages}
    about: dict[str, Any] = {"uri": None, "text": None, "metadata": {}, "evidence": evidence}
    hit = SearchHit(id="dog", **scores, **about)
    words = list(answer_lines(answer(hits=[hit])))[2:]
    assert [line.split() for line in words] == [
        ["0.100", "a", "region", "1"],
        ["0.400", "dalmatian", "region", "2"],
    ]


def test_a_split_is_offered_as_options_of_the_command() -> None:
    terms = [
        SuggestedTerm(role="all", text="a dog", source="a dog"),
        SuggestedTerm(role="not", text="red leash", source="without a red leash"),
        SuggestedTerm(role="not", text="collar", source="or a collar"),
    ]
    last = list(answer_lines(answer(suggestion=terms)))[-1]
    assert last.endswith("'a dog' --not 'red leash' --not collar")


def test_the_fields_that_there_are_are_named_up_to_a_number() -> None:
    said = "no item has a field 'year' to filter by"
    many = [f"f{number}" for number in range(23)]
    for fields, line in (
        ([], said),
        (["a", "b"], f"{said}; there are a, b"),
        (many, f"{said}; there are {', '.join(many[:20])} and 3 more"),
    ):
        found = answer(unknown_fields=["year"])
        assert [*answer_lines(found, fields, filtered=True)] == [line]


@pytest.mark.parametrize("code", [*get_args(Unreliable), "several_terms", "box", None])
def test_every_reason_for_no_probability_is_explained(code: str | None) -> None:
    assert len(unreliable_reason(code).split()) > 5
    assert unreliable_reason("moon") == "moon"  # of a newer service
    assert "--index INDEX" in unreliable_reason("other_photos")
