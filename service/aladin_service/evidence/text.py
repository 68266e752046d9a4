"""Layout of a text's words as boxes with their scores, broken into lines.

Words are ordered by the Unicode bidirectional algorithm (UAX 9), applied to whole words and without
explicit embeddings: a word without letters follows its neighbours. Inside a word Pillow applies the
whole algorithm if it has raqm, which its wheels include.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from aladin_service.evidence.drawing import (
    AGAINST,
    FAINT_INK,
    INK,
    Colour,
    Mark,
    Rectangle,
    Text,
    ink_on,
    printable,
    shortened,
    tint,
    width_px,
)
from aladin_service.evidence.words import Piece

WORD_PX = 30
NUMBER_PX = 18
_INSIDE_PX = 9  # padding of a box
_BETWEEN_PX = 10  # between words separated by white space; others touch
_LINES_APART_PX = 14
_MINUS = "\N{MINUS SIGN}"


def are_right_to_left(words: Sequence[str]) -> tuple[list[bool], bool]:
    """Determine the direction of each word and of the text.

    >>> are_right_to_left(["a", "1", "dog"])
    ([False, False, False], False)

    Args:
        words: Words of one text, in logical order.

    Returns:
        Whether each word runs from right to left (a word without letters has the direction of the
        word before it), and whether the text does (the direction of its first letter).
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
    >>> visual_order([True, True, False, False], of_text=True)
    [2, 3, 1, 0]

    Args:
        right_to_left: Whether each word of the line runs from right to left.
        of_text: Whether the text runs from right to left.
    """
    runs: list[list[int]] = []
    for reverse, run in groupby(range(len(right_to_left)), key=right_to_left.__getitem__):
        places = list(run)
        runs.append(places[::-1] if reverse else places)
    return [place for run in (reversed(runs) if of_text else runs) for place in run]


def _direction(word: str) -> bool | None:
    kinds = (unicodedata.bidirectional(character) for character in word)
    return next((kind != "L" for kind in kinds if kind in ("L", "R", "AL")), None)


# Baselines of the three lines of a box, and its height, measured from its top.
_WORD_AT, _SCORE_AT, _SHARE_AT, _HEIGHT_PX = 38, 66, 90, 102


class _Chip(NamedTuple):
    """A piece of the text that is not broken across lines.

    Attributes:
        lines: Word, score, and letter with share; only the text for a piece without evidence.
        width_px: Width of its box.
        piece: Piece of the text that it shows.
        parted: Whether there is a gap between it and the one before.
    """

    lines: tuple[str, ...]
    width_px: float
    piece: Piece
    parted: bool


def flow_text(
    pieces: Sequence[Piece], left: float, top: float, width: float
) -> tuple[list[Mark], float]:
    """Break a text into lines.

    Args:
        pieces: Pieces of the text, in logical order.
        left: Left edge of the lines.
        top: Top of the first line.
        width: Width of the lines.

    Returns:
        The marks, and the bottom of the last line.
    """
    chips = _chips(pieces, width)
    directions, of_text = are_right_to_left([chip.lines[0] for chip in chips])
    marks: list[Mark] = []
    y = top
    for line in _lines(chips, width):
        order = [line[place] for place in visual_order([directions[n] for n in line], of_text)]
        # A gap belongs to the later word of each pair, on whichever side it is drawn.
        gaps = [_gap(chips[max(pair)]) for pair in pairwise(order)]
        used = sum(gaps) + sum(chips[place].width_px for place in order)
        x = left + width - used if of_text else left
        starts: dict[int, float] = {}
        for place, gap in zip(order, [*gaps, 0], strict=True):
            starts[place] = x
            x += chips[place].width_px + gap
        for place in line:
            marks += _chip_marks(chips[place], starts[place], y)
        y += _HEIGHT_PX + _LINES_APART_PX
    return marks, y - _LINES_APART_PX if chips else top


def _gap(chip: _Chip) -> int:
    return _BETWEEN_PX if chip.parted else 0


def _lines(chips: Sequence[_Chip], width: float) -> list[list[int]]:
    """Return the indices of the chips of each line."""
    lines: list[list[int]] = [[]]
    x, place = 0.0, 0
    for unit in _units(chips):
        needed = _gap(unit[0]) + sum(chip.width_px for chip in unit)
        if lines[-1] and x + needed > width:
            lines.append([])
            x = 0.0
        x += _gap(unit[0]) if lines[-1] else 0
        for chip in unit:
            if lines[-1] and x + chip.width_px > width:  # a unit that is wider than a line
                lines.append([])
                x = 0.0
            lines[-1].append(place)
            x += chip.width_px
            place += 1
    return lines if chips else []


def _units(chips: Sequence[_Chip]) -> list[list[_Chip]]:
    """Group chips that touch: the pieces of one word stay on one line."""
    units: list[list[_Chip]] = []
    for chip in chips:
        if chip.parted or not units:
            units.append([chip])
        else:
            units[-1].append(chip)
    return units


def _chips(pieces: Sequence[Piece], width: float) -> list[_Chip]:
    chips: list[_Chip] = []
    parted = False
    for piece in pieces:
        text = printable(piece.text)
        parted = parted or text[:1].isspace()
        if piece.region is not None:
            chips.append(_word_chip(piece, text.strip(), parted, width))
            parted = False
        else:
            for part in text.split():
                shown = shortened(part, WORD_PX, width)
                chips.append(_Chip((shown,), width_px(shown, WORD_PX), piece, parted))
                parted = True
        parted = text[-1:].isspace() if text else parted
    return chips


def _word_chip(piece: Piece, text: str, parted: bool, width: float) -> _Chip:
    assert piece.region is not None  # checked by the caller
    shown = shortened(text, WORD_PX, width - 2 * _INSIDE_PX)
    numbers = (number(piece.score), f"{piece.region.letter}  {percent(piece.share)}")
    widest = max(width_px(shown, WORD_PX), *(width_px(each, NUMBER_PX) for each in numbers))
    return _Chip((shown, *numbers), widest + 2 * _INSIDE_PX, piece, parted)


def number(value: float) -> str:
    """Format a score for a drawing."""
    return _with_minus(f"{value:.4f}")


def percent(share: float) -> str:
    """Format a share for a drawing."""
    return _with_minus(f"{100 * share:.1f}") + " %"


def _with_minus(written: str) -> str:
    """Use the minus sign instead of a hyphen, and none before a zero."""
    return written.removeprefix("-") if float(written) == 0 else written.replace("-", _MINUS)


def _chip_marks(chip: _Chip, x: float, y: float) -> list[Mark]:
    piece = chip.piece
    if piece.region is None:
        return [Text(x, y + _WORD_AT, chip.lines[0], WORD_PX, FAINT_INK)]
    box = (x, y, x + chip.width_px, y + _HEIGHT_PX)
    background: Colour
    if piece.share < 0:
        background = tint(AGAINST, piece.strength)
        marks: list[Mark] = [Rectangle(box, background, INK, 2, dashed=True)]
    else:
        background = tint(piece.region.colour, piece.strength)
        marks = [Rectangle(box, background, piece.region.colour, 2)]
    ink = ink_on(background)
    for text, at, size in zip(
        chip.lines,
        (_WORD_AT, _SCORE_AT, _SHARE_AT),
        (WORD_PX, NUMBER_PX, NUMBER_PX),
        strict=True,
    ):
        if text:
            middle = x + (chip.width_px - width_px(text, size)) / 2
            marks.append(Text(middle, y + at, text, size, ink))
    return marks
