"""The photo of a drawing, with the boxes of the regions that words matched."""

from __future__ import annotations

from collections.abc import Sequence

from index.results import Box
from service.evidence.colours import GRID, PANEL, WHITE, ink_on
from service.evidence.fonts import printable, shortened, width_px
from service.evidence.marks import Mark, Photo, PixelBox, Rectangle, Text
from service.evidence.words import Region

LABEL_PX = 22
_LABEL_HEIGHT_PX = 32
_LABEL_INSIDE_PX = 7
_LINE_PX, _HALO_PX = 5, 2
# Neighbouring cells have an edge in common: each box keeps off it, so that both are seen.
_INSET_PX = 4


def photo_marks(
    frame: PixelBox,
    regions: Sequence[Region],
    all_boxes: Sequence[Box],
    *,
    has_photo: bool,
) -> list[Mark]:
    """Draw a photo's place with the boxes of its regions.

    Args:
        frame: the photo's place.
        regions: that words matched.
        all_boxes: of all regions; drawn where there is no photo.
        has_photo: else a plain panel takes its place.
    """
    marks: list[Mark] = []
    if has_photo:
        marks.append(Photo(frame))
    else:
        marks.append(Rectangle(frame, PANEL, GRID))
        marks += [Rectangle(_placed(box, frame), outline=GRID) for box in all_boxes]
    boxed = [
        (region, _inset(_placed(region.box, frame))) for region in regions if region.box is not None
    ]
    # Large boxes first: a region within another one is never hidden.
    boxed.sort(key=lambda each: -_area(each[1]))
    for region, box in boxed:
        marks.append(Rectangle(_grown(box, _HALO_PX), outline=WHITE, width_px=_HALO_PX))
        marks.append(Rectangle(box, outline=region.colour, width_px=_LINE_PX))
        inner = _grown(box, -_LINE_PX)
        marks.append(Rectangle(inner, outline=WHITE, width_px=_HALO_PX))
    # The labels of small boxes have the fewest places to be, and so the first choice.
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
    """Return where a label may be: a corner of its box that no other label has."""
    left, top, right, bottom = box
    spots = [
        (x, y, x + width, y + _LABEL_HEIGHT_PX)
        for y in (top, bottom - _LABEL_HEIGHT_PX)
        for x in (left, right - width)
    ]
    return next((spot for spot in spots if not any(_overlap(spot, o) for o in taken)), spots[0])


def _overlap(one: PixelBox, other: PixelBox) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _placed(box: Box, frame: PixelBox) -> PixelBox:
    left, top, right, bottom = frame
    wide, high = right - left, bottom - top
    return (
        round(left + box[0] * wide),
        round(top + box[1] * high),
        round(left + box[2] * wide),
        round(top + box[3] * high),
    )


def _inset(box: PixelBox) -> PixelBox:
    """Shrink a box, unless it is too small for that."""
    small = min(box[2] - box[0], box[3] - box[1]) < 6 * _INSET_PX
    return box if small else _grown(box, -_INSET_PX)


def _grown(box: PixelBox, by: float) -> PixelBox:
    left, top, right, bottom = box
    if by < 0 and min(right - left, bottom - top) <= -2 * by:
        return box
    return left - by, top - by, right + by, bottom + by


def _area(box: PixelBox) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
