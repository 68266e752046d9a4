from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations

import pytest

from aladin_service.evidence.drawing import (
    FAINT_INK,
    INK,
    PALETTE,
    WHITE,
    Page,
    Photo,
    Rectangle,
    Text,
    ink_on,
    width_px,
)
from aladin_service.evidence.layout import LABEL_PX, LINE_PX, lay_out
from aladin_service.evidence.png import ExplainedPair
from aladin_service.evidence.words import NUMBER_PX, WORD_PX

MakePair = Callable[..., ExplainedPair]

TEXT = "two dogs play in the deep snow"
ORDINARY = [(500, 375), (375, 500), (10, 10), (1920, 1080)]
EXTREME = [(2000, 200), (100, 4000)]
REGIONS = [0, 0, 3, 4, 1, 1, 4]
SCORES = [0.41237, 0.90111, 0.33333, -0.05, 0.1, 0.61, 0.7]


def texts(page: Page, size_px: int) -> list[Text]:
    return [mark for mark in page.marks if isinstance(mark, Text) and mark.size_px == size_px]


def box_of(text: Text) -> tuple[float, float, float, float]:
    wide = width_px(text.text, text.size_px)
    return text.x, text.baseline - text.size_px, text.x + wide, text.baseline


def numbers(written: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+\.\d+", written)]


def test_the_numbers_drawn_are_those_of_the_evidence(make_pair: MakePair) -> None:
    pair = make_pair(TEXT, REGIONS, SCORES)
    page = lay_out(pair, (500, 375), [], has_photo=True)
    assert [text.text for text in texts(page, WORD_PX)] == TEXT.split()
    drawn = [text.text for text in texts(page, NUMBER_PX)]
    scores, shares = drawn[::2], drawn[1::2]
    assert [numbers(each) for each in scores] == [
        [pytest.approx(word.score, abs=5.01e-5)] for word in pair.evidence
    ]
    assert [numbers(each) for each in shares] == [
        [pytest.approx(100 * word.share, abs=0.0501)] for word in pair.evidence
    ]
    assert [each.split()[0] for each in shares] == ["A", "A", "B", "C", "D", "D", "C"]
    (sums,) = [text for text in page.texts if "up to" in text]
    assert sums.startswith("7 words add up to")
    assert numbers(sums) == [pytest.approx(pair.align, abs=5.01e-5)] * 2
    assert "Match score 0.2500, the cosine of the two embeddings." in page.texts
    # A word against the photo is dashed.
    dashed = [mark for mark in page.marks if isinstance(mark, Rectangle) and mark.dashed]
    assert len(dashed) == 1
    assert "-0.0500" in drawn


def test_each_region_is_drawn_once_in_its_words_colour(make_pair: MakePair) -> None:
    page = lay_out(make_pair(TEXT, REGIONS, SCORES), (500, 375), [], has_photo=True)
    (photo,) = [mark for mark in page.marks if isinstance(mark, Photo)]
    left, top, right, bottom = photo.box
    assert (right - left) / (bottom - top) == pytest.approx(500 / 375, abs=0.01)
    boxes = {
        mark.outline: mark.box
        for mark in page.marks
        if isinstance(mark, Rectangle) and mark.outline in PALETTE and mark.width_px == LINE_PX
    }
    assert set(boxes) == set(PALETTE[:4])
    cells = [(0, 0, 0.5, 0.5), (0.5, 0.5, 1, 1), (0, 0, 1, 1)]
    for colour, cell in zip(PALETTE[:3], cells, strict=True):
        wide, high = right - left, bottom - top
        expected = (
            left + cell[0] * wide,
            top + cell[1] * high,
            left + cell[2] * wide,
            top + cell[3] * high,
        )
        assert boxes[colour] == pytest.approx(expected, abs=6)
    assert sorted(text.text for text in texts(page, LABEL_PX)[:4]) == [
        "A  two, dogs",
        "B  play",
        "C  in, snow",
        "D  the, deep",
    ]


def test_nothing_lies_on_anything_else_or_off_the_page(make_pair: MakePair) -> None:
    words = "a motorcyclist's extraordinarily longwindedincomprehensibilities " * 6
    for size_px in (*ORDINARY, *EXTREME):
        count = len(words.split())
        pair = make_pair(words, [n % 5 for n in range(count)], [0.1 + n / 99 for n in range(count)])
        page = lay_out(pair, size_px, [], has_photo=True)
        drawn = [mark for mark in page.marks if isinstance(mark, Text)]
        for left, top, right, bottom in map(box_of, drawn):
            assert left >= 0
            assert top >= 0
            assert right <= page.width_px
            assert bottom <= page.height_px
        if size_px in EXTREME:  # there labels have nowhere else to be
            drawn = [mark for mark in drawn if mark.size_px != LABEL_PX]
        for one, other in combinations(map(box_of, drawn), 2):
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] or other[3] <= one[1]


def test_text_has_the_ink_of_its_background(make_pair: MakePair) -> None:
    page = lay_out(make_pair(TEXT, REGIONS, SCORES), None, [], has_photo=False)
    for place, mark in enumerate(page.marks):
        if isinstance(mark, Text):
            left, top, right, bottom = box_of(mark)
            below = WHITE
            for under in page.marks[:place]:
                if isinstance(under, Rectangle) and under.fill is not None:
                    box = under.box
                    if box[0] <= left and box[1] <= top and right <= box[2] and bottom <= box[3]:
                        below = under.fill
            # Their contrasts are those of the test of colours.
            assert mark.colour in ((INK, FAINT_INK) if below == WHITE else (ink_on(below),))


def test_without_a_photo_its_regions_are_drawn(make_pair: MakePair) -> None:
    cells = [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)]
    page = lay_out(make_pair(TEXT, REGIONS, SCORES), (500, 375), cells, has_photo=False)
    assert not any(isinstance(mark, Photo) for mark in page.marks)
    assert "The photo is not available." in page.texts
    thin = [mark for mark in page.marks if isinstance(mark, Rectangle) and mark.width_px == 1]
    assert len(thin) >= len(cells)


def test_regions_without_boxes_are_named_by_number(make_pair: MakePair) -> None:
    page = lay_out(
        make_pair("red dog", [7, 2], [0.1, 0.2], placed=False), None, [], has_photo=False
    )
    (about,) = [text for text in page.texts if "unknown" in text]
    assert about.endswith("region boxes are unknown: A is region 7, B is region 2")
    assert page.height_px < 500  # no empty panel


@pytest.mark.parametrize(
    ("text", "order"),
    [("כלב אדום רץ", [2, 1, 0]), ("כלב red dog", [1, 2, 0]), ("a red dog", [0, 1, 2])],
)
def test_words_stand_in_the_order_of_their_script(
    make_pair: MakePair, text: str, order: list[int]
) -> None:
    page = lay_out(make_pair(text, [0, 1, 2], [0.1, 0.2, 0.3]), None, [], has_photo=False)
    places = [word.x for word in texts(page, WORD_PX)]
    assert sorted(range(3), key=places.__getitem__) == order


@pytest.mark.parametrize(("text", "warned"), [("a 狗", True), ("a dog", False)])
def test_a_text_with_characters_that_cannot_be_drawn_has_a_note(
    make_pair: MakePair, text: str, warned: bool
) -> None:
    page = lay_out(make_pair(text, [0, 1], [0.1, 0.2]), None, [], has_photo=False)
    assert any("missing from the typeface" in each for each in page.texts) is warned


def test_words_touch_only_where_no_space_is_between_them(make_pair: MakePair) -> None:
    spans = [(0, 5), (5, 6), (7, 11)]
    pair = make_pair("motor, runs", [0, 1, 2], [0.1, 0.2, 0.3], spans=spans)
    page = lay_out(pair, None, [], has_photo=False)
    chips = [
        mark.box
        for mark in page.marks
        if isinstance(mark, Rectangle) and mark.width_px == 2 and mark.fill is not None
    ]
    assert chips[0][2] == chips[1][0]
    assert chips[1][2] < chips[2][0]


def test_the_pieces_of_a_word_are_drawn_as_one(make_pair: MakePair) -> None:
    spans = [(0, 5), (5, 7), (7, 12), (13, 17)]
    pair = make_pair("motorcyclist runs", [0, 1, 1, 0], [0.1, 0.2, 0.25, 0.3], spans=spans)
    page = lay_out(pair, None, [], has_photo=False)
    assert [word.text for word in texts(page, WORD_PX)] == ["motorcyclist", "runs"]
    assert "0.5500" in page.texts
    assert any(text.startswith("2 words add up to 0.8500") for text in page.texts)


def test_words_that_touch_stay_in_one_line(make_pair: MakePair) -> None:
    text = "the quick brown motorcycles/motorcyclists motorcycles/motorcyclists"
    spans = [(0, 3), (4, 9), (10, 15)]
    for start in (16, 42):
        spans += [(start, start + 11), (start + 11, start + 12), (start + 12, start + 25)]
    pair = make_pair(text, [0] * 9, [0.1] * 9, spans=spans)
    words = texts(lay_out(pair, None, [], has_photo=False), WORD_PX)
    assert len({word.baseline for word in words}) == 3
    for start in (3, 6):
        assert len({word.baseline for word in words[start : start + 3]}) == 1
