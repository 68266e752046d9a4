"""Answers as plain text: the words of the evidence, and the last line about a set."""

from __future__ import annotations

from aladin_index.search.results import (
    Evidence,
    HitStages,
    SearchAnswer,
    SearchHit,
    Stage,
    SuggestedTerm,
    TookMs,
)
from aladin_service.reports.tables import answer_lines


def entry(token: str, start: int, region: int, score: float) -> Evidence:
    end = start + len(token)
    return Evidence(
        token=token, start=start, end=end, region=region, box=None, score=score, share=score
    )


def test_the_pieces_of_a_word_are_one_line_with_their_sum() -> None:
    evidence = [
        entry("a", 0, 1, 0.1),
        entry("d", 2, 0, 0.2),
        entry("alm", 3, 2, 0.3),
        entry("atian", 6, 0, -0.1),
    ]
    stages = HitStages(match=Stage(rank=1, score=0.4), align=Stage(rank=1, score=0.5))
    hit = SearchHit(
        id="dog", rank=1, score=0.5, per_word=0.1, stages=stages, uri=None, text=None, metadata={},
        evidence=evidence,
    )  # fmt: skip
    took = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
    answer = SearchAnswer(
        hits=[hit], reranked=True, fusion=1.0, candidates=1, generation=1, degraded=[], took_ms=took
    )

    words = list(answer_lines(answer))[2:]

    assert [line.split() for line in words] == [
        ["0.100", "a", "region", "1"],
        ["0.400", "dalmatian", "region", "2"],
    ]


def test_a_split_is_offered_as_options_of_the_command() -> None:
    took = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
    terms = [
        SuggestedTerm(role="all", text="a dog", source="a dog"),
        SuggestedTerm(role="not", text="red leash", source="without a red leash"),
        SuggestedTerm(role="not", text="collar", source="or a collar"),
    ]
    answer = SearchAnswer(
        hits=[],
        reranked=True,
        fusion=1.0,
        candidates=1,
        generation=1,
        degraded=[],
        suggestion=terms,
        took_ms=took,
    )
    line = "to exclude what the words negate: 'a dog' --not 'red leash' --not collar"
    assert list(answer_lines(answer))[-1] == line


def test_the_fields_that_there_are_are_named_up_to_a_number() -> None:
    took = TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0)
    answer = SearchAnswer(
        hits=[], reranked=True, fusion=1.0, candidates=1, generation=1, degraded=[], took_ms=took,
        unknown_fields=["year"],
    )  # fmt: skip
    said = "no item has a field 'year' to filter by"
    assert [*answer_lines(answer, filtered=True)] == [said]
    assert [*answer_lines(answer, ["a", "b"], filtered=True)] == [f"{said}; there are a, b"]
    many = [f"f{number}" for number in range(23)]
    assert [*answer_lines(answer, many, filtered=True)] == [
        f"{said}; there are {', '.join(many[:20])} and 3 more"
    ]
