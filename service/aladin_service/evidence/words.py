"""The words of a text with their regions, laid out as boxes with their scores."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from aladin_index.search.results import Box, Evidence
from aladin_index.search.whole_words import join_evidence
from aladin_service.evidence.drawing import (
    AGAINST,
    FAINT_INK,
    INK,
    Colour,
    Mark,
    Rectangle,
    Text,
    colour_of,
    ink_on,
    printable,
    shortened,
    tint,
    width_px,
)

# Longer pieces of text without evidence are truncated: a stored text may be very long.
MAX_PLAIN_CHARS = 300
WORD_PX, NUMBER_PX = 30, 18
_SIZES_PX = (WORD_PX, NUMBER_PX, NUMBER_PX)
_INSIDE_PX = 9  # padding of a box
_BETWEEN_PX = 10  # between words separated by white space; others touch
_LINES_APART_PX = 14
# Baselines of the three lines of a box, and its height, measured from its top.
_BASELINES, _HEIGHT_PX = (38, 66, 90), 102


class Region(NamedTuple):
    """A region that is the best match of at least one word, or of a region of another photo.

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
    tokens: tuple[str, ...] = ()


class Piece(NamedTuple):
    """A piece of the text; all pieces together are the text or its beginning.

    Attributes:
        text: Text of the piece, possibly white space.
        word: Evidence of the word, with the sums over its tokens, or None for a piece without.
        region: Region that it matched.
        strength: Absolute share relative to the largest of the text, from 0 to 1.
    """

    text: str
    word: Evidence | None = None
    region: Region | None = None
    strength: float = 0.0


def text_pieces(text: str, evidence: Sequence[Evidence]) -> tuple[list[Piece], list[Region]]:
    """Split a text into pieces, and return its regions in the order of their first word."""
    words = join_evidence(text, evidence)
    regions: dict[int, Region] = {}
    for word in words:
        new = Region(word.region, letter(len(regions)), colour_of(len(regions)), word.box)
        known = regions.get(word.region, new)
        regions[word.region] = known._replace(box=word.box, tokens=(*known.tokens, word.token))
    largest = max((abs(word.share) for word in words), default=0.0) or 1.0
    pieces: list[Piece] = []
    end = 0
    for word in words:
        if word.start > end:
            pieces.append(Piece(_cut(text[end : word.start])))
        strength = abs(word.share) / largest
        pieces.append(Piece(word.token, word, regions[word.region], strength))
        end = word.end
    if end < len(text):
        pieces.append(Piece(_cut(text[end:])))
    return pieces, list(regions.values())


def letter(place: int) -> str:
    """Return the letters of an index, as spreadsheets name their columns."""
    before, last = divmod(place, 26)
    return (letter(before - 1) if before else "") + string.ascii_uppercase[last]


def number(value: float) -> str:
    """Format a score for a drawing."""
    return f"{value:z.4f}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_PLAIN_CHARS else text[:MAX_PLAIN_CHARS] + " …"


class _Chip(NamedTuple):
    """A piece of the text that is not broken across lines.

    Attributes:
        lines: Word, score, and letter with share; only the text for a piece without evidence.
        width_px: Width of its box.
        piece: Piece of the text that it shows.
        gap_px: Distance from the one before.
    """

    lines: tuple[str, ...]
    width_px: float
    piece: Piece
    gap_px: int


def flow_text(
    pieces: Sequence[Piece], left: float, top: float, width: float
) -> tuple[list[Mark], float]:
    """Break a text into lines below `top`; returns the marks and the bottom of the last line."""
    chips = list(_chips(pieces, width))
    directions, of_text = are_right_to_left([chip.lines[0] for chip in chips])
    marks: list[Mark] = []
    y = top
    for line in _lines(chips, width):
        order = [line[place] for place in visual_order([directions[n] for n in line], of_text)]
        # A gap belongs to the later word of each pair, on whichever side it is drawn.
        gaps = [0, *(chips[max(pair)].gap_px for pair in pairwise(order))]
        used = sum(gaps) + sum(chips[place].width_px for place in order)
        x = left + width - used if of_text else left
        starts: dict[int, float] = {}
        for place, gap in zip(order, gaps, strict=True):
            starts[place] = x + gap
            x += gap + chips[place].width_px
        for place in line:
            marks += _chip_marks(chips[place], starts[place], y)
        y += _HEIGHT_PX + _LINES_APART_PX
    return marks, y - _LINES_APART_PX if chips else top


def _chips(pieces: Sequence[Piece], width: float) -> Iterator[_Chip]:
    is_parted = False
    for piece in pieces:
        text = printable(piece.text)
        is_parted = is_parted or text[:1].isspace()
        if piece.region is not None and piece.word is not None:
            share = f"{piece.region.letter}  {100 * piece.word.share:z.1f} %"
            shown = shortened(text.strip(), WORD_PX, width - 2 * _INSIDE_PX)
            lines = (shown, number(piece.word.score), share)
            widest = max(map(width_px, lines, _SIZES_PX))
            yield _Chip(lines, widest + 2 * _INSIDE_PX, piece, _BETWEEN_PX * is_parted)
            is_parted = False
        for part in text.split() if piece.region is None else ():
            shown = shortened(part, WORD_PX, width)
            yield _Chip((shown,), width_px(shown, WORD_PX), piece, _BETWEEN_PX * is_parted)
            is_parted = True
        is_parted = text[-1:].isspace() if text else is_parted


def _lines(chips: Sequence[_Chip], width: float) -> list[list[int]]:
    """Return the indices of the chips of each line; chips that touch stay on one line."""
    units: list[list[int]] = []
    for place, chip in enumerate(chips):
        if chip.gap_px or not units:
            units.append([])
        units[-1].append(place)
    lines: list[list[int]] = []
    x = 0.0
    for unit in units:
        needed = chips[unit[0]].gap_px + sum(chips[place].width_px for place in unit)
        for place in unit:
            starts = place == unit[0] and x + needed > width  # or a unit is wider than a line
            if not lines or starts or x + chips[place].width_px > width:
                lines.append([])
                x = 0.0
            x += chips[place].width_px + (chips[place].gap_px if lines[-1] else 0)
            lines[-1].append(place)
    return lines


def _chip_marks(chip: _Chip, x: float, y: float) -> list[Mark]:
    piece = chip.piece
    if piece.region is None or piece.word is None:
        return [Text(x, y + _BASELINES[0], chip.lines[0], WORD_PX, FAINT_INK)]
    is_against = piece.word.share < 0
    background = tint(AGAINST if is_against else piece.region.colour, piece.strength)
    outline = INK if is_against else piece.region.colour
    box = (x, y, x + chip.width_px, y + _HEIGHT_PX)
    marks: list[Mark] = [Rectangle(box, background, outline, 2, dashed=is_against)]
    for text, at, size in zip(chip.lines, _BASELINES, _SIZES_PX, strict=True):
        if text:
            middle = x + (chip.width_px - width_px(text, size)) / 2
            marks.append(Text(middle, y + at, text, size, ink_on(background)))
    return marks


def are_right_to_left(words: Sequence[str]) -> tuple[list[bool], bool]:
    """Return whether each word runs from right to left, and whether the text does.

    A word without letters has the direction of the word before it, and a text that of its first
    letter, as in the Unicode bidirectional algorithm (UAX 9) applied to whole words.

    >>> are_right_to_left(["a", "1", "dog"])
    ([False, False, False], False)
    """
    found = [_direction(word) for word in words]
    of_text = next((each for each in found if each is not None), False)
    directions: list[bool] = []
    for each in found:
        before = directions[-1] if directions else of_text
        directions.append(before if each is None else each)
    return directions, of_text


def visual_order(right_to_left: Sequence[bool], of_text: bool) -> list[int]:
    """Return the indices of a line's words in visual order, from left to right.

    >>> visual_order([False, True, True, False], of_text=False)
    [0, 2, 1, 3]
    """
    runs: list[list[int]] = []
    for reverse, run in groupby(range(len(right_to_left)), key=right_to_left.__getitem__):
        places = list(run)
        runs.append(places[::-1] if reverse else places)
    return [place for run in (reversed(runs) if of_text else runs) for place in run]


def _direction(word: str) -> bool | None:
    kinds = (unicodedata.bidirectional(character) for character in word)
    return next((kind != "L" for kind in kinds if kind in ("L", "R", "AL")), None)
