"""The words of a text as boxes with their numbers, set in lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from service.evidence.colours import AGAINST, FAINT_INK, INK, Colour, ink_on, tint
from service.evidence.fonts import is_right_to_left, printable, shortened, width_px
from service.evidence.marks import Mark, Rectangle, Text
from service.evidence.words import Piece

WORD_PX = 30
NUMBER_PX = 18
_INSIDE_PX = 9  # from a box's edge to what is in it
_BETWEEN_PX = 10  # words that white space parts; others touch
_LINES_APART_PX = 14
_MINUS = "\N{MINUS SIGN}"
# Baselines and the height of a box, from its top.
_WORD_AT, _SCORE_AT, _SHARE_AT, _HEIGHT_PX = 38, 66, 90, 102


class _Chip(NamedTuple):
    """A piece of the text that stays together.

    Attributes:
        lines: word, score, letter and share; of a piece between words its text alone.
        width_px: of its box.
        piece: what it shows.
        parted: whether there is room between it and the one before.
    """

    lines: tuple[str, ...]
    width_px: float
    piece: Piece
    parted: bool


def flow_text(
    pieces: Sequence[Piece], left: float, top: float, width: float
) -> tuple[list[Mark], float]:
    """Set the words of a text in lines.

    Args:
        pieces: of the text, in their order.
        left: where lines begin.
        top: of the first line.
        width: of the lines.

    Returns:
        The marks, and where the last line ends.
    """
    chips = _chips(pieces, width)
    mirrored = is_right_to_left("".join(piece.text for piece in pieces))
    marks: list[Mark] = []
    x, y = 0.0, top
    for unit in _units(chips):
        needed = sum(chip.width_px for chip in unit)
        gap = _BETWEEN_PX if unit[0].parted and x else 0
        if x and x + gap + needed > width:
            x, y, gap = 0.0, y + _HEIGHT_PX + _LINES_APART_PX, 0
        x += gap
        for chip in unit:
            if x and x + chip.width_px > width:  # a unit that no line has room for
                x, y = 0.0, y + _HEIGHT_PX + _LINES_APART_PX
            at = left + (width - x - chip.width_px if mirrored else x)
            marks += _chip_marks(chip, at, y)
            x += chip.width_px
    return marks, y + _HEIGHT_PX if chips else top


def _units(chips: Sequence[_Chip]) -> list[list[_Chip]]:
    """Put together what touches: the pieces of one word stay in one line."""
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
    assert piece.region is not None  # by the caller
    shown = shortened(text, WORD_PX, width - 2 * _INSIDE_PX)
    numbers = (number(piece.score), f"{piece.region.letter}  {percent(piece.share)}")
    widest = max(width_px(shown, WORD_PX), *(width_px(each, NUMBER_PX) for each in numbers))
    return _Chip((shown, *numbers), widest + 2 * _INSIDE_PX, piece, parted)


def number(value: float) -> str:
    """Write a score as the drawings do."""
    return _with_minus(f"{value:.4f}")


def percent(share: float) -> str:
    """Write a share as the drawings do."""
    return _with_minus(f"{100 * share:.1f}") + " %"


def _with_minus(written: str) -> str:
    """Write a real minus, and none before a zero."""
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
