"""The words of a text with their regions and the strength of their shading."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import NamedTuple

from aladin_index.search.results import Box, Evidence
from aladin_index.search.whole_words import join_evidence
from aladin_service.evidence.drawing import Colour, colour_of

# Longer pieces of text without evidence are truncated: a stored text may be very long.
MAX_PLAIN_CHARS = 300


class Region(NamedTuple):
    """A region that is the best match of at least one word.

    Attributes:
        number: Index of the region among those of the photo.
        letter: Name of the region in the drawing: A, B ... Z, AA, AB ... in the order of the words.
        colour: Colour of its box and its words.
        box: Box in fractions of the photo, or None if unknown.
        tokens: Words that it matched.
    """

    number: int
    letter: str
    colour: Colour
    box: Box | None
    tokens: tuple[str, ...]


class Piece(NamedTuple):
    """A piece of the text; all pieces together are the text or its beginning.

    Attributes:
        text: Text of the piece, possibly white space.
        region: Region that it matched, or None if it has no evidence.
        score: Score of its word, the sum over its tokens.
        share: Share of its word, the sum over its tokens.
        strength: Absolute share relative to the largest of the text, from 0 to 1.
    """

    text: str
    region: Region | None = None
    score: float = 0.0
    share: float = 0.0
    strength: float = 0.0


def text_pieces(text: str, evidence: Sequence[Evidence]) -> tuple[list[Piece], list[Region]]:
    """Split a text into pieces with and without evidence.

    Args:
        text: Text of the pair.
        evidence: Evidence for the pair, in the order of the text.

    Returns:
        The pieces, and the regions in the order of their first word.
    """
    words = join_evidence(text, evidence)
    regions = _regions(words)
    largest = max((abs(word.share) for word in words), default=0.0) or 1.0
    pieces: list[Piece] = []
    place = 0
    for word in words:
        if word.start > place:
            pieces.append(Piece(_cut(text[place : word.start])))
        shown = word.token
        strength = abs(word.share) / largest
        pieces.append(Piece(shown, regions[word.region], word.score, word.share, strength))
        place = word.end
    if place < len(text):
        pieces.append(Piece(_cut(text[place:])))
    return pieces, list(regions.values())


def _regions(words: Sequence[Evidence]) -> dict[int, Region]:
    boxes = {word.region: word.box for word in words}
    tokens: dict[int, list[str]] = {}
    for word in words:
        tokens.setdefault(word.region, []).append(word.token)
    return {
        number: Region(number, letter(place), colour_of(place), boxes[number], tuple(found))
        for place, (number, found) in enumerate(tokens.items())
    }


def letter(place: int) -> str:
    """Return the letters of an index, as spreadsheets name their columns."""
    letters = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = string.ascii_uppercase[rest] + letters
    return letters


def _cut(text: str) -> str:
    return text if len(text) <= MAX_PLAIN_CHARS else text[:MAX_PLAIN_CHARS] + " …"
