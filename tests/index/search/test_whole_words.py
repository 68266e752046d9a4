"""Tokens joined to words, in scripts with and without spaces."""

import pytest

from aladin_index.search.results import Evidence
from aladin_index.search.whole_words import join_evidence, whole_words


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["a", " dog"], ["a", " dog"]),
        (["d", "alm", "atian", " runs"], ["dalmatian", " runs"]),
        (["rock", "-", "climb", "er", "."], ["rock", "-", "climber", "."]),
        (["don", "'", "t"], ["don", "'", "t"]),
        (["20", "24"], ["2024"]),
        (["כל", "בים"], ["כלבים"]),
        (["हि", "न्दी"], ["हिन्दी"]),
        (["狗", "在", "跑"], ["狗", "在", "跑"]),
        (["สุนัข", "วิ่ง"], ["สุนัข", "วิ่ง"]),
        ([], []),
    ],
)
def test_tokens_that_touch_are_one_word(tokens: list[str], words: list[str]) -> None:
    text, spans = "", []
    for token in tokens:
        text += token
        spans.append((len(text) - len(token.lstrip()), len(text)))
    found = whole_words(text, spans)
    assert ["".join(tokens[token] for token in word) for word in found] == words


def test_tokens_of_the_same_character_belong_together() -> None:
    assert whole_words("狗 b", [(0, 1), (0, 1), (0, 1), (2, 3)]) == [range(0, 3), range(3, 4)]


def test_evidence_of_a_word_is_that_of_its_tokens() -> None:
    tokens = [("a", 0, 1, 4, 0.5), ("dal", 2, 5, 1, 0.25), ("matian", 5, 11, 2, -0.75)]
    evidence = [
        Evidence(
            token=token,
            start=start,
            end=end,
            region=region,
            box=(0.0, 0.0, region / 4, 1.0),
            score=score,
            share=score / 2,
        )
        for token, start, end, region, score in tokens
    ]
    first, second = join_evidence("a dalmatian", evidence)
    assert first == evidence[0]
    assert (second.token, second.start, second.end) == ("dalmatian", 2, 11)
    assert (second.region, second.box) == (2, (0.0, 0.0, 0.5, 1.0))
    assert (second.score, second.share) == (-0.5, -0.25)
    assert join_evidence("a dalmatian", []) == []
