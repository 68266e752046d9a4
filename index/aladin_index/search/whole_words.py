"""Groups the tokens of a text into whole words: tokenizers split rare words into pieces.

Pieces that touch belong to one word if there are letters, digits or marks on both sides of the
joint: ``d|alm|atian`` is one word, ``rock|-|climber`` three. In scripts that do not separate words
by spaces, every token remains a word of its own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

# For annotations only: the command line imports this module before it needs pydantic.
if TYPE_CHECKING:
    from aladin_index.search.results import Evidence

# First words of the Unicode names of characters in such scripts.
_WITHOUT_SPACES = {
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "JAVANESE",
}


def whole_words(text: str, spans: Sequence[tuple[int, int]]) -> list[range]:
    """Return the tokens of each word, given their characters [start, end), ascending.

    >>> whole_words("a dalmatian", [(0, 1), (2, 3), (3, 6), (6, 11)])
    [range(0, 1), range(1, 4)]
    """
    words: list[range] = []
    for token, (start, _) in enumerate(spans):
        before = spans[token - 1][1] if token else 0
        if words and (start < before or (start == before and _joins(text, start))):
            words[-1] = range(words[-1].start, token + 1)
        else:
            words.append(range(token, token + 1))
    return words


def join_evidence(text: str, evidence: Sequence[Evidence]) -> list[Evidence]:
    """Join the evidence of the tokens of each whole word.

    Args:
        text: Text that the tokens come from.
        evidence: Evidence of the tokens, in the order of the text.

    Returns:
        One entry a word: its tokens' scores and shares are added, and the token with the greatest
        absolute score gives the region.
    """
    words: list[Evidence] = []
    for tokens in whole_words(text, [(entry.start, entry.end) for entry in evidence]):
        entries = evidence[tokens.start : tokens.stop]
        start, end = entries[0].start, max(entry.end for entry in entries)
        strongest = max(entries, key=lambda entry: abs(entry.score))
        word = replace(
            strongest,
            token=text[start:end],
            start=start,
            end=end,
            score=sum(entry.score for entry in entries),
            share=sum(entry.share for entry in entries),
        )
        words.append(word)
    return words


def _joins(text: str, place: int) -> bool:
    """Whether the characters before and after a place belong to the same word."""
    return 0 < place < len(text) and all(map(_is_inside_a_word, text[place - 1 : place + 1]))


def _is_inside_a_word(character: str) -> bool:
    if unicodedata.category(character)[0] not in "LNM":
        return False
    return unicodedata.name(character, "").split(" ")[0] not in _WITHOUT_SPACES
