"""Tokens joined to words, in scripts with and without spaces."""

import pytest

from aladin_index.search.whole_words import whole_words


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
