"""The drawing of a part of a photo beside the photo that it was found in."""

from __future__ import annotations

import re

import pytest

from aladin_index.search.results import Box, RegionEvidence
from aladin_service.evidence.drawing import PALETTE, Page, Photo, PixelBox, Rectangle, Text
from aladin_service.evidence.layout import ShownPhoto, lay_out_photos, paired_regions
from aladin_service.evidence.png import ExplainedPair

CELLS: list[Box] = [(x / 2, y / 2, (x + 1) / 2, (y + 1) / 2) for y in range(2) for x in range(2)]
# The first and the last region of the query fit one of the photo's.
FITS, SCORES = {0: 3, 1: 2, 2: 3}, [0.75, 0.5, -0.25]


def evidence(*, placed: bool = True) -> list[RegionEvidence]:
    return [
        RegionEvidence(
            query_region=region,
            query_box=CELLS[region],
            region=best,
            box=CELLS[best] if placed else None,
            score=score,
            share=score / 1.5,
        )
        for (region, best), score in zip(FITS.items(), SCORES, strict=True)
    ]


def laid_out(
    *, has_photo: bool = True, placed: bool = True, name: str = "photo b", box: Box = CELLS[3]
) -> Page:
    pair = ExplainedPair(
        text="", text_id=None, photo_id="b", generation=1, match=0.125, align=1.0, evidence=[],
        box=(0.1, 0.1, 0.9, 0.9), query_photo_id="a", found=box,
        region_evidence=evidence(placed=placed),
    )  # fmt: skip
    query = ShownPhoto("photo a", (400, 300), (0.1, 0.1, 0.9, 0.9), True)
    hit = ShownPhoto(name, (300, 400), box, has_photo, CELLS)
    return lay_out_photos(pair, query, hit)


def frames(page: Page) -> list[PixelBox]:
    return [mark.box for mark in page.marks if isinstance(mark, Photo)]


def test_regions_that_fit_each_other_have_one_colour() -> None:
    asked, found = paired_regions(evidence())
    assert [(region.number, region.letter) for region in asked] == [(0, "A"), (1, "B"), (2, "C")]
    assert [region.colour for region in asked] == [PALETTE[0], PALETTE[1], PALETTE[0]]
    named = [(region.number, region.letter, region.colour) for region in found]
    assert named == [(3, "A C", PALETTE[0]), (2, "B", PALETTE[1])]
    assert [region.box for region in found] == [CELLS[3], CELLS[2]]


def test_both_photos_stand_side_by_side_with_dashed_boxes() -> None:
    page = laid_out()
    left, right = frames(page)
    assert [mark.place for mark in page.marks if isinstance(mark, Photo)] == [0, 1]
    assert left[2] < right[0]
    for frame, ratio in ((left, 4 / 3), (right, 3 / 4)):
        assert (frame[2] - frame[0]) / (frame[3] - frame[1]) == pytest.approx(ratio, abs=0.01)
        assert 0 <= frame[0] < frame[2] <= page.width_px
        assert 0 <= frame[1] < frame[3] <= page.height_px
    dashed = [mark.box for mark in page.marks if isinstance(mark, Rectangle) and mark.dashed]
    for box, frame, part in zip(
        dashed, (left, right), ((0.1, 0.1, 0.9, 0.9), CELLS[3]), strict=True
    ):
        wide, high = frame[2] - frame[0], frame[3] - frame[1]
        expected = [frame[0] + part[0] * wide, frame[1] + part[1] * high]
        expected += [frame[0] + part[2] * wide, frame[1] + part[3] * high]
        assert box == pytest.approx(expected, abs=1)  # whole pixels


@pytest.mark.parametrize("placed", [True, False])
def test_the_numbers_are_those_of_the_evidence(placed: bool) -> None:
    texts = laid_out(placed=placed).texts
    (scores,) = [text for text in texts if "%)" in text]
    assert re.findall(r"([A-C]) (-?\d\.\d+) \((-?\d+) %\)", scores) == [
        ("A", "0.7500", "50"),
        ("B", "0.5000", "33"),
        ("C", "-0.2500", "-17"),
    ]
    assert any("3 regions add up to 1.0000" in text for text in texts)
    assert any("Match score 0.1250" in text for text in texts)


def test_without_a_photo_its_regions_are_drawn() -> None:
    page = laid_out(has_photo=False)
    assert len(frames(page)) == 1
    assert "The photo is not available." in page.texts
    assert len([mark for mark in page.marks if isinstance(mark, Rectangle)]) > len(CELLS)


def test_a_long_name_is_shortened_and_a_thin_box_drawn() -> None:
    page = laid_out(name="photo " + "x" * 500 + "\n\0", box=(0.5, 0.0, 0.501, 1.0))
    names = [mark for mark in page.marks if isinstance(mark, Text) and mark.text.startswith("pho")]
    assert len(names) == 2
    assert all(len(mark.text) < 100 for mark in names)
