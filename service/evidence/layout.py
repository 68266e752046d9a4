"""Where everything of a drawing is: the photo above, its text with the numbers below."""

from __future__ import annotations

from collections.abc import Sequence

from index.results import Box
from service.answers.explained_pair import ExplainedPair
from service.evidence.colours import FAINT_INK, INK
from service.evidence.fonts import is_missing, printable, shortened, width_px
from service.evidence.marks import Mark, Page, Text
from service.evidence.photo_panel import photo_marks
from service.evidence.text_flow import flow_text, number
from service.evidence.words import Region, text_pieces

# What a photo is fitted into, whether it is larger or smaller, and the least width of its page.
PHOTO_PX = (1000, 680)
_LEAST_WIDTH_PX = 760
_MARGIN_PX = 32
_SUM_PX, _NOTE_PX = 22, 17
_LINE_HEIGHT = 1.5

_HOW_TO_READ = (
    "Below each word: its cosine with the region that fits it best; that region's letter, and the "
    "word's share of the sizes of all cosines. Darker: a larger share. Dashed: below zero, taken "
    "off the score."
)
_MISSING = "□: a character that the typeface lacks; the file's own data have the whole text."


def lay_out(
    pair: ExplainedPair,
    size_px: tuple[int, int] | None,
    all_boxes: Sequence[Box],
    *,
    has_photo: bool,
) -> Page:
    """Lay out the drawing of a pair.

    Args:
        pair: whose evidence is drawn.
        size_px: width and height of the photo; None: not known, and then nothing takes its place.
        all_boxes: of all of its regions; drawn where there is no photo.
        has_photo: else a plain panel takes its place.
    """
    wide, high = (0, 0) if size_px is None else _fitted(size_px)
    width = max(wide, _LEAST_WIDTH_PX)
    left, top = _MARGIN_PX, float(_MARGIN_PX)
    pieces, regions = text_pieces(pair.text, pair.evidence)
    marks: list[Mark] = []
    y = top
    if size_px is not None:
        beside = (width - wide) // 2
        frame = (left + beside, top, left + beside + wide, top + high)
        marks += photo_marks(frame, regions, all_boxes, has_photo=has_photo)
        y += high + 14
    about = _about(pair, regions, width, has_photo=has_photo)
    y = _lines(marks, about, left, y, width, _NOTE_PX)
    words, y = flow_text(pieces, left, y + 14, width)
    marks += words
    y = _lines(marks, [_sum(pair)], left, y + 20, width, _SUM_PX, bold=True)
    notes = [f"Match score {number(pair.match)}, the cosine of the two embeddings.", _HOW_TO_READ]
    if is_missing(printable(pair.text[: _last_drawn(pair)])):
        notes.append(_MISSING)
    y = _lines(marks, notes, left, y + 8, width, _NOTE_PX)
    return Page(width + 2 * _MARGIN_PX, round(y) + _MARGIN_PX, tuple(marks))


def _fitted(size_px: tuple[int, int]) -> tuple[int, int]:
    """Return how large a photo is drawn."""
    wide, high = size_px
    factor = min(PHOTO_PX[0] / wide, PHOTO_PX[1] / high)
    return max(1, round(wide * factor)), max(1, round(high * factor))


def _about(
    pair: ExplainedPair, regions: Sequence[Region], width: float, *, has_photo: bool
) -> list[str]:
    """Name the pair, and say of what is not drawn why it is not."""
    photo = "uploaded photo" if pair.photo_id is None else f"photo {printable(pair.photo_id)}"
    lines = [shortened(photo, _NOTE_PX, width)]
    if pair.text_id is not None:
        lines.append(shortened(f"text {printable(pair.text_id)}", _NOTE_PX, width))
    if not has_photo:
        lines.append("The photo cannot be shown.")
    # Where no box shows which region is meant, its number says so.
    unplaced = [f"{each.letter} is region {each.number}" for each in regions if each.box is None]
    if unplaced:
        lines.append("Its size is not known, nor where its regions are: " + ", ".join(unplaced))
    return lines


def _sum(pair: ExplainedPair) -> str:
    total = sum(entry.score for entry in pair.evidence)
    words = "1 word adds" if len(pair.evidence) == 1 else f"{len(pair.evidence)} words add"
    return f"{words} up to {number(total)}  =  alignment score {number(pair.align)}"


def _last_drawn(pair: ExplainedPair) -> int:
    return pair.evidence[-1].end if pair.evidence else 0


def _lines(
    marks: list[Mark],
    paragraphs: Sequence[str],
    left: float,
    top: float,
    width: float,
    size_px: int,
    *,
    bold: bool = False,
) -> float:
    """Set paragraphs in lines; returns where the last one ends."""
    colour = INK if bold else FAINT_INK
    y = top
    for paragraph in paragraphs:
        for line in _wrapped(paragraph, width, size_px, bold):
            y += size_px * _LINE_HEIGHT
            baseline = y - size_px * (_LINE_HEIGHT - 1)
            marks.append(Text(left, baseline, line, size_px, colour, bold))
    return y


def _wrapped(paragraph: str, width: float, size_px: int, bold: bool) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in paragraph.split(" "):
        longer = f"{line} {word}" if line else word
        if line and width_px(longer, size_px, bold) > width:
            lines.append(line.rstrip())
            line = word
        else:
            line = longer
    return [*lines, line] if line else lines
