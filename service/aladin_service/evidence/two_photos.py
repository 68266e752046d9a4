"""The layout of a drawing of two photos: the query's with its box, and the one that it found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aladin_index.search.results import Box, RegionEvidence
from aladin_service.evidence.drawing import (
    INK,
    WHITE,
    Mark,
    Page,
    PixelBox,
    Rectangle,
    colour_of,
    printable,
    shortened,
)
from aladin_service.evidence.layout import (
    MARGIN_PX,
    NOTE_PX,
    SUM_PX,
    add_lines,
    fitted,
    photo_marks,
    placed,
)
from aladin_service.evidence.png import ExplainedPair
from aladin_service.evidence.text import number
from aladin_service.evidence.words import Region, letter

# Each photo is scaled up or down to fit this size.
SIDE_PX = (540, 540)
_GAP_PX = 28
_OUTLINE_PX, _HALO_PX = 4, 2

_HOW_TO_READ = (
    "Left: the photo of the query. Right: the photo found. Regions of one colour fit each other "
    "best; below, the cosine of each region of the query with its best region, and its share of "
    "the sum of all absolute cosines. Dashed: the box of the query, and where it was found."
)


class ShownPhoto(NamedTuple):
    """One of the two photos.

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


def lay_out_photos(pair: ExplainedPair, query: ShownPhoto, hit: ShownPhoto) -> Page:
    """Lay out the drawing of two photos.

    Args:
        pair: Pair with the evidence of its regions.
        query: Photo of the query.
        hit: Photo of the hit.
    """
    evidence = pair.region_evidence or []
    asked, found = paired_regions(evidence)
    width = 2 * SIDE_PX[0] + _GAP_PX
    marks: list[Mark] = []
    bottom = float(MARGIN_PX)
    for place, (shown, regions) in enumerate(((query, asked), (hit, found))):
        left = MARGIN_PX + place * (SIDE_PX[0] + _GAP_PX)
        frame = _frame(shown, left)
        marks += photo_marks(
            frame, regions, shown.all_boxes, has_photo=shown.has_photo, place=place
        )
        if shown.box is not None:
            marks += _outline(placed(shown.box, frame))
        y = add_lines(marks, _about(shown), left, frame[3] + 10, SIDE_PX[0], NOTE_PX)
        bottom = max(bottom, y)
    left = MARGIN_PX
    scores = [
        f"{region.letter} {number(each.score)} ({round(100 * each.share)} %)"
        for region, each in zip(asked, evidence, strict=True)
    ]
    bottom = add_lines(marks, [" · ".join(scores)], left, bottom + 14, width, SUM_PX)
    bottom = add_lines(marks, [_sum(pair)], left, bottom + 10, width, SUM_PX, bold=True)
    match = (
        f"Match score {number(pair.match)}, the cosine of the embeddings of the part and the photo."
    )
    bottom = add_lines(marks, [match, _HOW_TO_READ], left, bottom + 8, width, NOTE_PX)
    return Page(width + 2 * MARGIN_PX, round(bottom) + MARGIN_PX, tuple(marks))


def paired_regions(evidence: Sequence[RegionEvidence]) -> tuple[list[Region], list[Region]]:
    """Return the regions of both photos, those that fit each other in one colour.

    Args:
        evidence: Best region of the hit for each region of the query.

    Returns:
        The query's regions in their order, each with a letter; and the hit's in the order of their
        first letter, each with the letters of the regions that it fits best.
    """
    groups: dict[int, list[int]] = {}
    for place, each in enumerate(evidence):
        groups.setdefault(each.region, []).append(place)
    asked: dict[int, Region] = {}
    found: list[Region] = []
    for colour, (region, places) in enumerate(groups.items()):
        for place in places:
            each = evidence[place]
            asked[place] = Region(
                each.query_region, letter(place), colour_of(colour), each.query_box, ()
            )
        letters = " ".join(map(letter, places))
        box = evidence[places[0]].box
        found.append(Region(region, letters, colour_of(colour), box, ()))
    return [asked[place] for place in range(len(evidence))], found


def _frame(shown: ShownPhoto, left: float) -> PixelBox:
    """Return the place of a photo in its column; an unknown size is that of the column."""
    wide, high = SIDE_PX if shown.size_px is None else fitted(shown.size_px, SIDE_PX)
    start = left + (SIDE_PX[0] - wide) // 2
    return start, MARGIN_PX, start + wide, MARGIN_PX + high


def _outline(box: PixelBox) -> list[Mark]:
    left, top, right, bottom = box
    halo = left - _HALO_PX, top - _HALO_PX, right + _HALO_PX, bottom + _HALO_PX
    inner = left + _OUTLINE_PX, top + _OUTLINE_PX, right - _OUTLINE_PX, bottom - _OUTLINE_PX
    marks: list[Mark] = [Rectangle(halo, outline=WHITE, width_px=_HALO_PX)]
    if inner[0] < inner[2] and inner[1] < inner[3]:
        marks.append(Rectangle(inner, outline=WHITE, width_px=_HALO_PX))
    return [*marks, Rectangle(box, outline=INK, width_px=_OUTLINE_PX, dashed=True)]


def _about(shown: ShownPhoto) -> list[str]:
    name = shortened(printable(shown.name), NOTE_PX, SIDE_PX[0])
    return [name] if shown.has_photo else [name, "The photo is not available."]


def _sum(pair: ExplainedPair) -> str:
    evidence = pair.region_evidence or []
    total = sum(each.score for each in evidence)
    regions = "1 region adds" if len(evidence) == 1 else f"{len(evidence)} regions add"
    return f"{regions} up to {number(total)}  =  alignment score {number(pair.align)}"
