"""Drawings of evidence: a photo with its regions above a text, or two photos side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from PIL import Image

from aladin_index.search.results import Box, RegionEvidence
from aladin_index.search.whole_words import join_evidence
from aladin_service.evidence.canvas import (
    GRID,
    INK,
    MARGIN_PX,
    NOTE_PX,
    PANEL,
    WHITE,
    Canvas,
    PixelBox,
    colour_of,
    ink_on,
    is_missing,
    printable,
    shortened,
    width_px,
)
from aladin_service.evidence.png import ExplainedPair
from aladin_service.evidence.words import Region, draw_words, letter, number, regions_of

# A photo is scaled up or down to fit this size, each of two the other; the page of one has at
# least the width below.
PHOTO_PX, SIDE_PX = (1000, 680), (540, 540)
_LEAST_WIDTH_PX, _BETWEEN_PX = 760, 28
LABEL_PX, _SUM_PX = 22, 22
_LABEL_HEIGHT_PX, _LABEL_INSIDE_PX = 32, 7
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
    """A photo of a drawing.

    Attributes:
        name: Description for people.
        size_px: Width and height, or None if unknown.
        picture: The upright RGB photo; None if it is not available: a plain panel replaces it.
        box: Box to outline, or None.
        all_boxes: Boxes of all its regions, drawn if it is not available.
    """

    name: str
    size_px: tuple[int, int] | None
    picture: Image.Image | None
    box: Box | None = None
    all_boxes: Sequence[Box] = ()


def draw_text_and_photo(pair: ExplainedPair, photo: ShownPhoto) -> Image.Image:
    """Draw a text and a photo, which is omitted if its size is unknown."""
    wide, high = (0, 0) if photo.size_px is None else fitted(photo.size_px, PHOTO_PX)
    canvas = Canvas(max(wide, _LEAST_WIDTH_PX))
    words = join_evidence(pair.text, pair.evidence)
    regions = regions_of(words)
    if photo.size_px is not None:
        left = MARGIN_PX + (canvas.width - wide) // 2
        frame = (left, MARGIN_PX, left + wide, MARGIN_PX + high)
        _draw_photo(canvas, photo, frame, regions.values())
        canvas.y += high + 14
    texts = [] if pair.text_id is None else [f"text {pair.text_id}"]
    for name in (photo.name, *texts):
        canvas.write(shortened(printable(name), NOTE_PX, canvas.width))
    if photo.picture is None:
        canvas.write(_NO_PHOTO)
    # Regions without a box are identified by their number.
    unplaced = [
        f"{each.letter} is region {each.number}" for each in regions.values() if each.box is None
    ]
    if unplaced:
        canvas.write("Photo size and region boxes are unknown: " + ", ".join(unplaced))
    canvas.y += 14
    draw_words(canvas, pair.text, words, regions)
    _write_sum(canvas, [each.score for each in pair.evidence], len(words), "word", pair, 20)
    canvas.write(f"Match score {number(pair.match)}, the cosine of the two embeddings.", above=8)
    canvas.write(_HOW_TO_READ)
    if is_missing(printable(pair.text[: pair.evidence[-1].end if pair.evidence else 0])):
        canvas.write(_MISSING)
    return canvas.finished()


def draw_two_photos(pair: ExplainedPair, query: ShownPhoto, hit: ShownPhoto) -> Image.Image:
    """Draw two photos: the query's with its box, and the one that was found."""
    evidence = pair.region_evidence or []
    asked, found = paired_regions(evidence)
    canvas = Canvas(2 * SIDE_PX[0] + _BETWEEN_PX)
    bottom = canvas.y
    for place, (shown, regions) in enumerate(((query, asked), (hit, found))):
        column = MARGIN_PX + place * (SIDE_PX[0] + _BETWEEN_PX)
        # An unknown size is that of the column.
        wide, high = SIDE_PX if shown.size_px is None else fitted(shown.size_px, SIDE_PX)
        left = column + (SIDE_PX[0] - wide) // 2
        frame = (left, MARGIN_PX, left + wide, MARGIN_PX + high)
        _draw_photo(canvas, shown, frame, regions)
        if shown.box is not None:
            box = placed(shown.box, frame)
            canvas.box(grown(box, _HALO_PX), None, WHITE, LINE_PX)
            canvas.box(box, None, INK, LINE_PX, dashed=True)
        canvas.y = frame[3] + 10
        lines = [shortened(printable(shown.name), NOTE_PX, SIDE_PX[0])]
        for line in lines if shown.picture is not None else [*lines, _NO_PHOTO]:
            canvas.write(line, left=column, width=SIDE_PX[0])
        bottom = max(bottom, canvas.y)
    canvas.y = bottom
    scores = [
        f"{region.letter} {number(each.score)} ({round(100 * each.share)} %)"
        for region, each in zip(asked, evidence, strict=True)
    ]
    canvas.write(" · ".join(scores), _SUM_PX, 14)
    _write_sum(canvas, [each.score for each in evidence], len(evidence), "region", pair, 10)
    match = number(pair.match)
    canvas.write(
        f"Match score {match}, the cosine of the part's and the photo's embeddings.", above=8
    )
    canvas.write(_HOW_TO_READ_TWO)
    return canvas.finished()


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


def _write_sum(
    canvas: Canvas,
    scores: Sequence[float],
    count: int,
    what: str,
    pair: ExplainedPair,
    above: float,
) -> None:
    adds = f"1 {what} adds" if count == 1 else f"{count} {what}s add"
    total = f"{adds} up to {number(sum(scores))}  =  alignment score {number(pair.align)}"
    canvas.write(total, _SUM_PX, above)


def _draw_photo(
    canvas: Canvas, photo: ShownPhoto, frame: tuple[int, int, int, int], regions: Iterable[Region]
) -> None:
    """Draw a photo, or a panel in its place, with the boxes and labels of its regions."""
    if photo.picture is not None:
        canvas.photo(frame, photo.picture)
    else:
        canvas.box(frame, PANEL, GRID)
        for box in photo.all_boxes:
            canvas.box(placed(box, frame), None, GRID)
    boxed = [
        (region, _inset(placed(region.box, frame))) for region in regions if region.box is not None
    ]
    # Large boxes first, so that a region inside another one is never hidden.
    boxed.sort(key=lambda each: -(each[1][2] - each[1][0]) * (each[1][3] - each[1][1]))
    for region, box in boxed:
        canvas.box(grown(box, _HALO_PX), None, WHITE, LINE_PX + 2 * _HALO_PX)
        canvas.box(box, None, region.colour, LINE_PX)
    # Small boxes have the fewest places for a label, so their labels are placed first.
    taken: list[PixelBox] = []
    for region, box in reversed(boxed):
        label = _label(region, box[2] - box[0])
        spot = _free_spot(box, width_px(label, LABEL_PX) + 2 * _LABEL_INSIDE_PX, taken)
        taken.append(spot)
        canvas.box(spot, region.colour)
        x, baseline = spot[0] + _LABEL_INSIDE_PX, spot[1] + _LABEL_HEIGHT_PX - 9
        canvas.text(x, baseline, label, LABEL_PX, ink_on(region.colour))


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
