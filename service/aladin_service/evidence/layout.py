"""The layout of drawings: a photo with its regions above a text, or two photos side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aladin_index.search.results import Box, RegionEvidence
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
    colour_of,
    ink_on,
    is_missing,
    printable,
    shortened,
    width_px,
)
from aladin_service.evidence.png import ExplainedPair
from aladin_service.evidence.words import Region, flow_text, letter, number, text_pieces

# A photo is scaled up or down to fit this size, each of two the other; the page of one has at
# least the width below.
PHOTO_PX, SIDE_PX = (1000, 680), (540, 540)
_LEAST_WIDTH_PX = 760
_MARGIN_PX, _BETWEEN_PX = 32, 28
LABEL_PX, _SUM_PX, _NOTE_PX = 22, 22, 17
_LABEL_HEIGHT_PX, _LABEL_INSIDE_PX = 32, 7
_LINE_HEIGHT = 1.5
LINE_PX, _HALO_PX = 5, 2
# Neighbouring cells share an edge: boxes are inset so that both outlines are visible.
_INSET_PX = 4

_HOW_TO_READ = (
    "Below each word: its cosine with its best region; the letter of that region, and the word's "
    "share of the sum of all absolute cosines. Darker: a larger share. Dashed: a negative cosine, "
    "which lowers the score."
)
_HOW_TO_READ_TWO = (
    "Left: the photo of the query. Right: the photo found. Regions of one colour fit each other "
    "best; below, the cosine of each region of the query with its best region, and its share of "
    "the sum of all absolute cosines. Dashed: the box of the query, and where it was found."
)
_MISSING = (
    "Boxes stand for characters missing from the typeface; the metadata of this file contain the "
    "whole text."
)
_NO_PHOTO = "The photo is not available."


class ShownPhoto(NamedTuple):
    """One of two photos.

    Attributes:
        name: Description for people.
        size_px: Width and height, or None if unknown.
        box: Box to outline, or None.
        has_photo: Whether the photo is available; if not, a plain panel replaces it.
        all_boxes: Boxes of all its regions, drawn if it is not available.
    """

    name: str
    size_px: tuple[int, int] | None
    box: Box | None
    has_photo: bool
    all_boxes: Sequence[Box] = ()


def lay_out(
    pair: ExplainedPair,
    size_px: tuple[int, int] | None,
    all_boxes: Sequence[Box],
    *,
    has_photo: bool,
) -> Page:
    """Lay out the drawing of a text and a photo, which is omitted if its size is unknown.

    `all_boxes`, those of all regions, are drawn if the photo is not available.
    """
    wide, high = (0, 0) if size_px is None else fitted(size_px, PHOTO_PX)
    width = max(wide, _LEAST_WIDTH_PX)
    pieces, regions = text_pieces(pair.text, pair.evidence)
    paper = _Paper(width)
    if size_px is not None:
        left = _MARGIN_PX + (width - wide) // 2
        frame = (left, _MARGIN_PX, left + wide, _MARGIN_PX + high)
        paper.marks += _photo_marks(frame, regions, all_boxes, has_photo=has_photo)
        paper.y += high + 14
    photo = "uploaded photo" if pair.photo_id is None else f"photo {pair.photo_id}"
    paper.write(_one_line(photo, width))
    if pair.text_id is not None:
        paper.write(_one_line(f"text {pair.text_id}", width))
    if not has_photo:
        paper.write(_NO_PHOTO)
    # Regions without a box are identified by their number.
    unplaced = [f"{each.letter} is region {each.number}" for each in regions if each.box is None]
    if unplaced:
        paper.write("Photo size and region boxes are unknown: " + ", ".join(unplaced))
    words, paper.y = flow_text(pieces, _MARGIN_PX, paper.y + 14, width)
    paper.marks += words
    count = sum(piece.region is not None for piece in pieces)
    paper.write(_sum([each.score for each in pair.evidence], count, "word", pair), _SUM_PX, 20)
    paper.write(f"Match score {number(pair.match)}, the cosine of the two embeddings.", above=8)
    paper.write(_HOW_TO_READ)
    if is_missing(printable(pair.text[: pair.evidence[-1].end if pair.evidence else 0])):
        paper.write(_MISSING)
    return paper.page()


def lay_out_photos(pair: ExplainedPair, query: ShownPhoto, hit: ShownPhoto) -> Page:
    """Lay out the drawing of two photos: the query's with its box, and the one that was found."""
    evidence = pair.region_evidence or []
    asked, found = paired_regions(evidence)
    paper = _Paper(2 * SIDE_PX[0] + _BETWEEN_PX)
    bottom = paper.y
    for place, (shown, regions) in enumerate(((query, asked), (hit, found))):
        column = _Paper(SIDE_PX[0], _MARGIN_PX + place * (SIDE_PX[0] + _BETWEEN_PX))
        # An unknown size is that of the column.
        wide, high = SIDE_PX if shown.size_px is None else fitted(shown.size_px, SIDE_PX)
        left = column.left + (SIDE_PX[0] - wide) // 2
        frame = (left, _MARGIN_PX, left + wide, _MARGIN_PX + high)
        column.marks += _photo_marks(
            frame, regions, shown.all_boxes, has_photo=shown.has_photo, place=place
        )
        if shown.box is not None:
            box = placed(shown.box, frame)
            column.marks.append(Rectangle(grown(box, _HALO_PX), None, WHITE, LINE_PX))
            column.marks.append(Rectangle(box, None, INK, LINE_PX, dashed=True))
        column.y = frame[3] + 10
        column.write(_one_line(shown.name, SIDE_PX[0]))
        if not shown.has_photo:
            column.write(_NO_PHOTO)
        paper.marks += column.marks
        bottom = max(bottom, column.y)
    paper.y = bottom
    scores = [
        f"{region.letter} {number(each.score)} ({round(100 * each.share)} %)"
        for region, each in zip(asked, evidence, strict=True)
    ]
    paper.write(" · ".join(scores), _SUM_PX, 14)
    total = _sum([each.score for each in evidence], len(evidence), "region", pair)
    paper.write(total, _SUM_PX, 10)
    match = (
        f"Match score {number(pair.match)}, the cosine of the part's and the photo's embeddings."
    )
    paper.write(match, above=8)
    paper.write(_HOW_TO_READ_TWO)
    return paper.page()


def paired_regions(evidence: Sequence[RegionEvidence]) -> tuple[list[Region], list[Region]]:
    """Return the regions of both photos, those that fit each other in one colour.

    The query's come in their order, each with a letter; the hit's in the order of their first
    letter, each with the letters of the regions that it fits best.
    """
    asked: list[Region] = []
    found: dict[int, Region] = {}
    for place, each in enumerate(evidence):
        name = letter(place)
        known = found.get(each.region)
        colour = colour_of(len(found)) if known is None else known.colour
        letters = name if known is None else f"{known.letter} {name}"
        asked.append(Region(each.query_region, name, colour, each.query_box))
        found[each.region] = Region(each.region, letters, colour, each.box)
    return asked, list(found.values())


def fitted(size_px: tuple[int, int], most_px: tuple[int, int]) -> tuple[int, int]:
    """Return the width and height at which a photo is drawn, as large as fits."""
    wide, high = size_px
    factor = min(most_px[0] / wide, most_px[1] / high)
    return max(1, round(wide * factor)), max(1, round(high * factor))


class _Paper:
    """Marks of a column that is filled from top to bottom; `y` is the end of what it has."""

    def __init__(self, width: float, left: float = _MARGIN_PX) -> None:
        self.marks: list[Mark] = []
        self.width, self.left = width, left
        self.y: float = _MARGIN_PX

    def write(self, paragraph: str, size_px: int = _NOTE_PX, above: float = 0) -> None:
        """Add a paragraph, broken into lines."""
        self.y += above
        for line in _wrapped(paragraph, self.width, size_px):
            self.y += size_px * _LINE_HEIGHT
            baseline = self.y - size_px * (_LINE_HEIGHT - 1)
            ink = FAINT_INK if size_px == _NOTE_PX else INK
            self.marks.append(Text(self.left, baseline, line, size_px, ink))

    def page(self) -> Page:
        """Return the page of this column alone."""
        wide, high = round(self.width) + 2 * _MARGIN_PX, round(self.y) + _MARGIN_PX
        return Page(wide, high, tuple(self.marks))


def _wrapped(paragraph: str, width: float, size_px: int) -> list[str]:
    lines: list[str] = []
    for word in paragraph.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_px(longer, size_px) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line for line in lines if line]


def _one_line(name: str, width: float) -> str:
    return shortened(printable(name), _NOTE_PX, width)


def _sum(scores: Sequence[float], count: int, what: str, pair: ExplainedPair) -> str:
    adds = f"1 {what} adds" if count == 1 else f"{count} {what}s add"
    return f"{adds} up to {number(sum(scores))}  =  alignment score {number(pair.align)}"


def _photo_marks(
    frame: PixelBox,
    regions: Sequence[Region],
    all_boxes: Sequence[Box],
    *,
    has_photo: bool,
    place: int = 0,
) -> list[Mark]:
    """Lay out a photo, or a panel in its place, with the boxes and labels of its regions."""
    marks: list[Mark] = [Photo(frame, place)] if has_photo else [Rectangle(frame, PANEL, GRID)]
    if not has_photo:
        marks += [Rectangle(placed(box, frame), None, GRID) for box in all_boxes]
    boxed = [
        (region, _inset(placed(region.box, frame))) for region in regions if region.box is not None
    ]
    # Large boxes first, so that a region inside another one is never hidden.
    boxed.sort(key=lambda each: -_area(each[1]))
    for region, box in boxed:
        marks.append(Rectangle(grown(box, _HALO_PX), None, WHITE, LINE_PX + 2 * _HALO_PX))
        marks.append(Rectangle(box, None, region.colour, LINE_PX))
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
    """Return a box in fractions of a photo as whole pixels of the page."""
    left, top, right, bottom = frame
    x0, x1 = (round(left + x * (right - left)) for x in box[::2])
    y0, y1 = (round(top + y * (bottom - top)) for y in box[1::2])
    return x0, y0, x1, y1


def _inset(box: PixelBox) -> PixelBox:
    """Shrink a box unless it is too small."""
    small = min(box[2] - box[0], box[3] - box[1]) < 6 * _INSET_PX
    return box if small else grown(box, -_INSET_PX)


def grown(box: PixelBox, by: float) -> PixelBox:
    """Move each edge of a box outwards."""
    left, top, right, bottom = box
    return left - by, top - by, right + by, bottom + by


def _area(box: PixelBox) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
