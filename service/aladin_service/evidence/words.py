"""The words of a text as they are drawn: which region each has, and how strongly it is shaded."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import NamedTuple

from aladin_index.search.results import Box, Evidence
from aladin_service.evidence.drawing import Colour, colour_of

# Beyond, a piece of text without evidence is cut: a stored text may be a book.
MAX_PLAIN_CHARS = 300


class Region(NamedTuple):
    """A region that is the best of at least one word.

    Attributes:
        number: row of the region among the photo's.
        letter: by which the drawing names it: A, B ... Z, AA, AB ... in the words' order.
        colour: of its box and its words.
        box: in fractions of the photo; None: not known.
        tokens: its words.
    """

    number: int
    letter: str
    colour: Colour
    box: Box | None
    tokens: tuple[str, ...]


class Piece(NamedTuple):
    """A piece of the text; all pieces together are the text, or its beginning.

    Attributes:
        text: may be white space.
        region: that it matched; None: a piece between words.
        score: of its word, or the sum of several words that share their characters.
        share: as `score`.
        strength: size of the share, 1 being the largest of the text.
    """

    text: str
    region: Region | None = None
    score: float = 0.0
    share: float = 0.0
    strength: float = 0.0


class _Word(NamedTuple):
    """One or several entries of evidence about the same characters."""

    start: int
    end: int
    entries: list[Evidence]

    @property
    def score(self) -> float:
        return sum(entry.score for entry in self.entries)

    @property
    def share(self) -> float:
        return sum(entry.share for entry in self.entries)

    @property
    def region(self) -> int:
        return max(self.entries, key=lambda entry: abs(entry.score)).region


def text_pieces(text: str, evidence: Sequence[Evidence]) -> tuple[list[Piece], list[Region]]:
    """Cut a text into what is drawn.

    Args:
        text: of the pair.
        evidence: of the pair, in the text's order.

    Returns:
        The pieces, and the regions in the order of their first word.
    """
    words = _words(evidence)
    regions = _regions(text, words)
    largest = max((abs(word.share) for word in words), default=0.0) or 1.0
    pieces: list[Piece] = []
    place = 0
    for word in words:
        if word.start > place:
            pieces.append(Piece(_cut(text[place : word.start])))
        shown = text[word.start : word.end]
        strength = abs(word.share) / largest
        pieces.append(Piece(shown, regions[word.region], word.score, word.share, strength))
        place = word.end
    if place < len(text):
        pieces.append(Piece(_cut(text[place:])))
    return pieces, list(regions.values())


def _words(evidence: Sequence[Evidence]) -> list[_Word]:
    """Put together what cannot be drawn apart: some tokenizers cut a character into several."""
    words: list[_Word] = []
    for entry in evidence:
        if words and entry.start < words[-1].end:
            last = words.pop()
            words.append(_Word(last.start, max(last.end, entry.end), [*last.entries, entry]))
        else:
            words.append(_Word(entry.start, entry.end, [entry]))
    return words


def _regions(text: str, words: Sequence[_Word]) -> dict[int, Region]:
    boxes = {entry.region: entry.box for word in words for entry in word.entries}
    tokens: dict[int, list[str]] = {}
    for word in words:
        tokens.setdefault(word.region, []).append(text[word.start : word.end])
    return {
        number: Region(number, _letter(place), colour_of(place), boxes[number], tuple(found))
        for place, (number, found) in enumerate(tokens.items())
    }


def _letter(place: int) -> str:
    """Name a place as spreadsheets name columns."""
    letters = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = string.ascii_uppercase[rest] + letters
    return letters


def _cut(text: str) -> str:
    return text if len(text) <= MAX_PLAIN_CHARS else text[:MAX_PLAIN_CHARS] + " …"
