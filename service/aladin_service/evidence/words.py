"""The words of a text with their regions, drawn as boxes with their scores."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from aladin_index.search.results import Box, Evidence
from aladin_service.evidence.canvas import (
    AGAINST,
    INK,
    MARGIN_PX,
    Canvas,
    Colour,
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


def regions_of(words: Sequence[Evidence]) -> dict[int, Region]:
    """Return the regions of some words by number, in the order of their first word."""
    regions: dict[int, Region] = {}
    for word in words:
        new = Region(word.region, letter(len(regions)), colour_of(len(regions)), word.box)
        known = regions.get(word.region, new)
        regions[word.region] = known._replace(box=word.box, tokens=(*known.tokens, word.token))
    return regions


def letter(place: int) -> str:
    """Return the letters of an index, as spreadsheets name their columns."""
    before, last = divmod(place, 26)
    return (letter(before - 1) if before else "") + string.ascii_uppercase[last]


def number(value: float) -> str:
    """Format a score for a drawing."""
    return f"{value:z.4f}"


class _Chip(NamedTuple):
    """A piece of the text that is not broken across lines; no fill: without evidence."""

    lines: tuple[str, ...]
    width_px: float
    gap_px: int
    fill: Colour | None = None
    outline: Colour = INK
    dashed: bool = False


def draw_words(
    canvas: Canvas, text: str, words: Sequence[Evidence], regions: Mapping[int, Region]
) -> None:
    """Break a text into lines below what the canvas has; words are whole words of the text."""
    chips = _chips(text, words, regions, canvas.width)
    directions, of_text = are_right_to_left([chip.lines[0] for chip in chips])
    for line in _lines(chips, canvas.width):
        order = [line[place] for place in visual_order([directions[n] for n in line], of_text)]
        # A gap belongs to the later word of each pair, on whichever side it is drawn.
        gaps = [0, *(chips[max(pair)].gap_px for pair in pairwise(order))]
        used = sum(gaps) + sum(chips[place].width_px for place in order)
        x = MARGIN_PX + canvas.width - used if of_text else float(MARGIN_PX)
        for place, gap in zip(order, gaps, strict=True):
            _draw_chip(canvas, chips[place], x + gap)
            x += gap + chips[place].width_px
        canvas.y += _HEIGHT_PX + _LINES_APART_PX
    if chips:
        canvas.y -= _LINES_APART_PX


def _chips(
    text: str, words: Sequence[Evidence], regions: Mapping[int, Region], width: float
) -> list[_Chip]:
    largest = max((abs(word.share) for word in words), default=0.0) or 1.0
    chips: list[_Chip] = []
    is_parted, end = False, 0
    for word in (*words, None):
        plain = text[end : len(text) if word is None else word.start]
        if len(plain) > MAX_PLAIN_CHARS:
            plain = plain[:MAX_PLAIN_CHARS] + " …"
        plain = printable(plain)
        is_parted = is_parted or plain[:1].isspace()
        for part in plain.split():
            shown = shortened(part, WORD_PX, width)
            gap_px = _BETWEEN_PX * is_parted
            chips.append(_Chip((shown,), width_px(shown, WORD_PX), gap_px))
            is_parted = True
        is_parted = plain[-1:].isspace() if plain else is_parted
        if word is None:
            break
        region, token, end = regions[word.region], printable(word.token), word.end
        shown = shortened(token.strip(), WORD_PX, width - 2 * _INSIDE_PX)
        lines = shown, number(word.score), f"{region.letter}  {100 * word.share:z.1f} %"
        wide = max(map(width_px, lines, _SIZES_PX)) + 2 * _INSIDE_PX
        gap_px = _BETWEEN_PX * (is_parted or token[:1].isspace())
        is_against = word.share < 0
        fill = tint(AGAINST if is_against else region.colour, abs(word.share) / largest)
        outline = INK if is_against else region.colour
        chips.append(_Chip(lines, wide, gap_px, fill, outline, is_against))
        is_parted = token[-1:].isspace()
    return chips


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


def _draw_chip(canvas: Canvas, chip: _Chip, x: float) -> None:
    if chip.fill is None:
        canvas.text(x, canvas.y + _BASELINES[0], chip.lines[0], WORD_PX)
        return
    box = (x, canvas.y, x + chip.width_px, canvas.y + _HEIGHT_PX)
    canvas.box(box, chip.fill, chip.outline, 2, dashed=chip.dashed)
    for text, at, size in zip(chip.lines, _BASELINES, _SIZES_PX, strict=True):
        middle = x + (chip.width_px - width_px(text, size)) / 2
        canvas.text(middle, canvas.y + at, text, size, ink_on(chip.fill))


def are_right_to_left(words: Sequence[str]) -> tuple[list[bool], bool]:
    """Return whether each word runs from right to left, and whether the text does.

    A word without letters has the direction of the word before it, and a text that of its first
    letter, as in the Unicode bidirectional algorithm (UAX 9) applied to whole words.
    """
    found = [_direction(word) for word in words]
    of_text = next((each for each in found if each is not None), False)
    directions: list[bool] = []
    for each in found:
        before = directions[-1] if directions else of_text
        directions.append(before if each is None else each)
    return directions, of_text


def visual_order(right_to_left: Sequence[bool], of_text: bool) -> list[int]:
    """Return the indices of a line's words in visual order, from left to right."""
    runs: list[list[int]] = []
    for reverse, run in groupby(range(len(right_to_left)), key=right_to_left.__getitem__):
        places = list(run)
        runs.append(places[::-1] if reverse else places)
    return [place for run in (reversed(runs) if of_text else runs) for place in run]


def _direction(word: str) -> bool | None:
    kinds = (unicodedata.bidirectional(character) for character in word)
    return next((kind != "L" for kind in kinds if kind in ("L", "R", "AL")), None)
