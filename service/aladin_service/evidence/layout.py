"""The layout of a drawing: the photo with its regions, and the text with its scores below."""

from __future__ import annotations

from collections.abc import Sequence

from aladin_index.search.results import Box
from aladin_service.evidence.drawing import (
    FAINT_INK,
    GRID,
    INK,
    PANEL,
    WHITE,
    Mark,
    Page,
    Photo,
    PixelBox,
    Rectangle,
    Text,
    ink_on,
    is_missing,
    printable,
    shortened,
    width_px,
)
from aladin_service.evidence.png import ExplainedPair
from aladin_service.evidence.text import flow_text, number
from aladin_service.evidence.words import Piece, Region, text_pieces

LABEL_PX = 22
_LABEL_HEIGHT_PX = 32
_LABEL_INSIDE_PX = 7
_LINE_PX, _HALO_PX = 5, 2
# Neighbouring cells share an edge: boxes are inset so that both outlines are visible.
_INSET_PX = 4

# The photo is scaled up or down to fit this size; the page has at least the width below.
PHOTO_PX = (1000, 680)
_LEAST_WIDTH_PX = 760
MARGIN_PX = 32

_LINE_HEIGHT = 1.5

_HOW_TO_READ = (
    "Below each word: its cosine with its best region; the letter of that region, and the word's "
    "share of the sum of all absolute cosines. Darker: a larger share. Dashed: a negative cosine, "
    "which lowers the score."
)
_MISSING = (
    "□: a character missing from the typeface; the metadata of this file contain the whole text."
)


def photo_marks(
    frame: PixelBox,
    regions: Sequence[Region],
    all_boxes: Sequence[Box],
    *,
    has_photo: bool,
    place: int = 0,
) -> list[Mark]:
    """Lay out the photo with the boxes of its regions.

    Args:
        frame: Place of the photo.
        regions: Regions that words matched.
        all_boxes: Boxes of all regions, drawn if there is no photo.
        has_photo: Whether the photo is available; if not, a plain panel replaces it.
        place: Number of the photo among those of the page.
    """
    marks: list[Mark] = []
    if has_photo:
        marks.append(Photo(frame, place))
    else:
        marks.append(Rectangle(frame, PANEL, GRID))
        marks += [Rectangle(placed(box, frame), outline=GRID) for box in all_boxes]
    boxed = [
        (region, _inset(placed(region.box, frame))) for region in regions if region.box is not None
    ]
    # Large boxes first, so that a region inside another one is never hidden.
    boxed.sort(key=lambda each: -_area(each[1]))
    for region, box in boxed:
        marks.append(Rectangle(_grown(box, _HALO_PX), outline=WHITE, width_px=_HALO_PX))
        marks.append(Rectangle(box, outline=region.colour, width_px=_LINE_PX))
        inner = _grown(box, -_LINE_PX)
        marks.append(Rectangle(inner, outline=WHITE, width_px=_HALO_PX))
    # Small boxes have the fewest places for a label, so their labels are placed first.
    taken: list[PixelBox] = []
    for region, box in reversed(boxed):
        label = _label(region, box[2] - box[0])
        spot = _free_spot(box, width_px(label, LABEL_PX) + 2 * _LABEL_INSIDE_PX, taken)
        taken.append(spot)
        marks.append(Rectangle(spot, region.colour))
        baseline = spot[1] + _LABEL_HEIGHT_PX - 9
        ink = ink_on(region.colour)
        marks.append(Text(spot[0] + _LABEL_INSIDE_PX, baseline, label, LABEL_PX, ink))
    return marks


def _label(region: Region, width: float) -> str:
    tokens = ", ".join(dict.fromkeys(printable(token).strip() for token in region.tokens))
    room = width - 2 * _LABEL_INSIDE_PX
    written = shortened(f"{region.letter}  {tokens}".rstrip(), LABEL_PX, room)
    return written if len(written) > len(region.letter) + 1 else region.letter


def _free_spot(box: PixelBox, width: float, taken: Sequence[PixelBox]) -> PixelBox:
    """Return the place of a label: a corner of its box that no other label overlaps."""
    left, top, right, bottom = box
    spots = [
        (x, y, x + width, y + _LABEL_HEIGHT_PX)
        for y in (top, bottom - _LABEL_HEIGHT_PX)
        for x in (left, right - width)
    ]
    return next((spot for spot in spots if not any(_overlap(spot, o) for o in taken)), spots[0])


def _overlap(one: PixelBox, other: PixelBox) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def placed(box: Box, frame: PixelBox) -> PixelBox:
    left, top, right, bottom = frame
    wide, high = right - left, bottom - top
    return (
        round(left + box[0] * wide),
        round(top + box[1] * high),
        round(left + box[2] * wide),
        round(top + box[3] * high),
    )


def _inset(box: PixelBox) -> PixelBox:
    """Shrink a box unless it is too small."""
    small = min(box[2] - box[0], box[3] - box[1]) < 6 * _INSET_PX
    return box if small else _grown(box, -_INSET_PX)


def _grown(box: PixelBox, by: float) -> PixelBox:
    left, top, right, bottom = box
    if by < 0 and min(right - left, bottom - top) <= -2 * by:
        return box
    return left - by, top - by, right + by, bottom + by


def _area(box: PixelBox) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


SUM_PX, NOTE_PX = 22, 17


def lay_out(
    pair: ExplainedPair,
    size_px: tuple[int, int] | None,
    all_boxes: Sequence[Box],
    *,
    has_photo: bool,
) -> Page:
    """Lay out the drawing of a pair.

    Args:
        pair: Pair with its evidence.
        size_px: Width and height of the photo, or None if unknown; the photo is then omitted.
        all_boxes: Boxes of all regions of the photo, drawn if the photo is not available.
        has_photo: Whether the photo is available; if not, a plain panel replaces it.
    """
    wide, high = (0, 0) if size_px is None else fitted(size_px, PHOTO_PX)
    width = max(wide, _LEAST_WIDTH_PX)
    left, top = MARGIN_PX, float(MARGIN_PX)
    pieces, regions = text_pieces(pair.text, pair.evidence)
    marks: list[Mark] = []
    y = top
    if size_px is not None:
        beside = (width - wide) // 2
        frame = (left + beside, top, left + beside + wide, top + high)
        marks += photo_marks(frame, regions, all_boxes, has_photo=has_photo)
        y += high + 14
    about = _about(pair, regions, width, has_photo=has_photo)
    y = add_lines(marks, about, left, y, width, NOTE_PX)
    words, y = flow_text(pieces, left, y + 14, width)
    marks += words
    y = add_lines(marks, [_sum(pair, pieces)], left, y + 20, width, SUM_PX, bold=True)
    notes = [f"Match score {number(pair.match)}, the cosine of the two embeddings.", _HOW_TO_READ]
    if is_missing(printable(pair.text[: _last_drawn(pair)])):
        notes.append(_MISSING)
    y = add_lines(marks, notes, left, y + 8, width, NOTE_PX)
    return Page(width + 2 * MARGIN_PX, round(y) + MARGIN_PX, tuple(marks))


def fitted(size_px: tuple[int, int], most_px: tuple[int, int]) -> tuple[int, int]:
    """Return the width and height at which a photo is drawn, as large as fits."""
    wide, high = size_px
    factor = min(most_px[0] / wide, most_px[1] / high)
    return max(1, round(wide * factor)), max(1, round(high * factor))


def _about(
    pair: ExplainedPair, regions: Sequence[Region], width: float, *, has_photo: bool
) -> list[str]:
    """Return lines that name the pair and explain what is not drawn."""
    photo = "uploaded photo" if pair.photo_id is None else f"photo {printable(pair.photo_id)}"
    lines = [shortened(photo, NOTE_PX, width)]
    if pair.text_id is not None:
        lines.append(shortened(f"text {printable(pair.text_id)}", NOTE_PX, width))
    if not has_photo:
        lines.append("The photo is not available.")
    # Regions without a box are identified by their number.
    unplaced = [f"{each.letter} is region {each.number}" for each in regions if each.box is None]
    if unplaced:
        lines.append("Photo size and region boxes are unknown: " + ", ".join(unplaced))
    return lines


def _sum(pair: ExplainedPair, pieces: Sequence[Piece]) -> str:
    total = sum(entry.score for entry in pair.evidence)
    count = sum(piece.region is not None for piece in pieces)
    words = "1 word adds" if count == 1 else f"{count} words add"
    return f"{words} up to {number(total)}  =  alignment score {number(pair.align)}"


def _last_drawn(pair: ExplainedPair) -> int:
    return pair.evidence[-1].end if pair.evidence else 0


def add_lines(
    marks: list[Mark],
    paragraphs: Sequence[str],
    left: float,
    top: float,
    width: float,
    size_px: int,
    *,
    bold: bool = False,
) -> float:
    """Add the lines of paragraphs to the marks, and return the bottom of the last line."""
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
