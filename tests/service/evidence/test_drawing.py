"""A photo with its regions above a text, and two photos side by side."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from PIL import Image

from aladin_index.search.results import Box, Evidence, RegionEvidence
from aladin_service.evidence.canvas import FAINT_INK, INK, PALETTE, WHITE, PixelBox, ink_on
from aladin_service.evidence.drawing import (
    LABEL_PX,
    LINE_PX,
    ShownPhoto,
    draw_text_and_photo,
    draw_two_photos,
    paired_regions,
)
from aladin_service.evidence.png import ExplainedPair
from aladin_service.evidence.words import (
    MAX_PLAIN_CHARS,
    NUMBER_PX,
    WORD_PX,
    are_right_to_left,
    regions_of,
    visual_order,
)
from tests.service.evidence.conftest import CELLS, Drawn, made_pair

TEXT = "two dogs play in the deep snow"
ORDINARY = [(500, 375), (375, 500), (10, 10), (1920, 1080)]
EXTREME = [(2000, 200), (100, 4000)]
ABOUT = made_pair(TEXT, [0, 0, 3, 4, 1, 1, 4], [0.41237, 0.90111, 0.33333, -0.05, 0.1, 0.61, 0.7])
# Capitals stand for a script that runs from right to left, as in the examples of UAX 9.
HEBREW = {"DOG": "כלב", "RED": "אדום", "RUNS": "רץ"}


def draw(pair: ExplainedPair, size_px: tuple[int, int] | None = None) -> Image.Image:
    """Draw a pair with a photo of a size, or without one."""
    picture = None if size_px is None else Image.new("RGB", size_px)
    return draw_text_and_photo(pair, ShownPhoto("photo a", size_px, picture))


def numbers(written: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+\.\d+", written)]


def within(box: Box, frame: PixelBox) -> list[float]:
    """A box in fractions of a frame, in pixels."""
    left, top, right, bottom = frame
    wide, high = right - left, bottom - top
    return [left + box[0] * wide, top + box[1] * high, left + box[2] * wide, top + box[3] * high]


def test_the_numbers_drawn_are_those_of_the_evidence(drawn: Drawn) -> None:
    draw(ABOUT, (500, 375))
    assert drawn.said(WORD_PX) == TEXT.split()
    scores, shares = drawn.said(NUMBER_PX)[::2], drawn.said(NUMBER_PX)[1::2]
    for word, score, share, letter in zip(ABOUT.evidence, scores, shares, "AABCDDC", strict=True):
        assert numbers(score) == [pytest.approx(word.score, abs=5.01e-5)]
        assert numbers(share) == [pytest.approx(100 * word.share, abs=0.0501)]
        assert share.split()[0] == letter
    (sums,) = [text for text in drawn.said() if "up to" in text]
    assert sums.startswith("7 words add up to")
    assert numbers(sums) == [pytest.approx(ABOUT.align, abs=5.01e-5)] * 2
    assert "Match score 0.2500, the cosine of the two embeddings." in drawn.said()
    assert [dashed for *_, dashed in drawn.boxes].count(True) == 1  # the word against the photo
    assert "-0.0500" in scores


def test_each_region_is_drawn_once_in_its_words_colour(drawn: Drawn) -> None:
    draw(ABOUT, (500, 375))
    (frame,) = drawn.photos
    left, top, right, bottom = frame
    assert (right - left) / (bottom - top) == pytest.approx(500 / 375, abs=0.01)
    boxes = {
        ink: box for box, _, ink, width, _ in drawn.boxes if ink in PALETTE and width == LINE_PX
    }
    assert set(boxes) == set(PALETTE[:4])
    for colour, cell in zip(PALETTE, (CELLS[0], CELLS[3], CELLS[4], CELLS[1]), strict=False):
        assert boxes[colour] == pytest.approx(within(cell, frame), abs=6)
    labels = ["A  two, dogs", "B  play", "C  in, snow", "D  the, deep"]
    assert sorted(drawn.said(LABEL_PX)[:4]) == labels


@pytest.mark.parametrize("size_px", [*ORDINARY, *EXTREME])
def test_nothing_lies_on_anything_else_or_off_the_page(
    drawn: Drawn, size_px: tuple[int, int]
) -> None:
    words = "a motorcyclist's extraordinarily longwindedincomprehensibilities " * 6
    count = len(words.split())
    picture = draw(
        made_pair(words, [n % 5 for n in range(count)], [0.1 + n / 99 for n in range(count)]),
        size_px,
    )
    for _, _, (left, top, right, bottom), _ in drawn.texts:
        assert min(left, top) >= 0
        assert right <= picture.width
        assert bottom <= picture.height
    # Labels have nowhere else to be on extreme photos.
    shown = [place for _, size, place, _ in drawn.texts if size_px in ORDINARY or size != LABEL_PX]
    for one, other in combinations(shown, 2):
        apart = one[2] <= other[0] or other[2] <= one[0]
        assert apart or one[3] <= other[1] or other[3] <= one[1]


def test_text_has_the_ink_of_its_background(drawn: Drawn) -> None:
    draw(ABOUT)
    for _, _, (left, top, right, bottom), ink in drawn.texts:
        below = WHITE
        for box, fill, *_ in drawn.boxes:
            if fill and box[0] <= left and box[1] <= top and right <= box[2] and bottom <= box[3]:
                below = fill
        assert ink in ((INK, FAINT_INK) if below == WHITE else (ink_on(below),))


def test_without_a_photo_its_regions_are_drawn_or_named(drawn: Drawn) -> None:
    cells: list[Box] = [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)]
    draw_text_and_photo(ABOUT, ShownPhoto("photo a", (500, 375), None, None, cells))
    assert drawn.photos == []
    assert "The photo is not available." in drawn.said()
    assert [width for *_, width, _ in drawn.boxes].count(1) >= len(cells)
    picture = draw(made_pair("red dog", [7, 2], [0.1, 0.2], placed=False))
    (about,) = [text for text in drawn.said() if "unknown" in text]
    assert about.endswith("region boxes are unknown: A is region 7, B is region 2")
    assert picture.height < 500  # no empty panel


def test_a_text_with_characters_that_cannot_be_drawn_has_a_note(drawn: Drawn) -> None:
    for text, notes in (("a dog", 0), ("a 狗", 1)):
        draw(made_pair(text, [0, 1], [0.1, 0.2]))
        assert sum("missing from the typeface" in each for each in drawn.said()) == notes


def test_words_touch_only_where_no_space_is_between_them_and_stay_in_one_line(
    drawn: Drawn,
) -> None:
    draw(made_pair("motor, runs", [0, 1, 2], [0.1, 0.2, 0.3], spans=[(0, 5), (5, 6), (7, 11)]))
    chips = [box for box, fill, _, width, _ in drawn.boxes if width == 2 and fill is not None]
    assert chips[0][2] == chips[1][0]
    assert chips[1][2] < chips[2][0]
    drawn.texts.clear()
    text = "the quick brown motorcycles/motorcyclists motorcycles/motorcyclists"
    spans = [(0, 3), (4, 9), (10, 15)]
    for start in (16, 42):
        spans += [(start, start + 11), (start + 11, start + 12), (start + 12, start + 25)]
    draw(made_pair(text, [0] * 9, [0.1] * 9, spans=spans))
    lines = [bottom for *_, bottom in drawn.places(WORD_PX)]
    assert len(set(lines)) == 3
    assert [len(set(lines[start : start + 3])) for start in (3, 6)] == [1, 1]


def test_the_pieces_of_a_word_are_drawn_as_one_and_text_without_evidence_is_cut(
    drawn: Drawn,
) -> None:
    spans = [(0, 5), (5, 7), (7, 12), (13, 17)]
    text = "motorcyclist runs"
    draw(made_pair(text, [0, 1, 1, 0], [0.1, 0.2, 0.25, 0.3], spans=spans))
    assert drawn.said(WORD_PX) == text.split()
    assert "0.5500" in drawn.said()
    assert any(each.startswith("2 words add up to 0.8500") for each in drawn.said())
    drawn.texts.clear()
    draw(made_pair("red " + "x " * 10_000, [1], [0.0]))  # a share of nothing
    assert drawn.said(WORD_PX) == ["red", *"x" * (MAX_PLAIN_CHARS // 2), "…"]


def test_regions_have_letters_and_colours_in_the_order_of_their_first_word() -> None:
    regions = list(
        regions_of(made_pair("two red dogs", [3, 1, 3], [0.5, 0.2, 0.3]).evidence).values()
    )
    assert [(each.letter, each.number, each.tokens) for each in regions] == [
        ("A", 3, ("two", "dogs")),
        ("B", 1, ("red",)),
    ]
    assert [each.colour for each in regions] == list(PALETTE[:2])
    word = {"token": "a", "start": 0, "end": 1, "box": None, "score": 0.1, "share": 0.1}
    letters = [
        each.letter for each in regions_of([Evidence(region=n, **word) for n in range(60)]).values()
    ]
    named = letters[:2] + letters[25:28] + letters[51:54]
    assert named == ["A", "B", "Z", "AA", "AB", "AZ", "BA", "BB"]
    assert len(set(letters)) == 60


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a red dog", "a red dog"),
        ("DOG RED RUNS", "RUNS RED DOG"),
        ("the DOG RED runs", "the RED DOG runs"),
        ("DOG the red RUNS", "RUNS the red DOG"),
        ("DOG , RED", "RED , DOG"),
        ("1 . DOG", "DOG . 1"),
        ("dog , RED !", "dog , ! RED"),
        ("1 2 3", "1 2 3"),
    ],
)
def test_words_of_mixed_scripts_stand_in_reading_order(drawn: Drawn, text: str, seen: str) -> None:
    words = [HEBREW.get(word, word) for word in text.split()]
    draw(made_pair(" ".join(words), range(4), [0.1] * len(words)))
    placed = dict(zip(drawn.said(WORD_PX), drawn.places(WORD_PX), strict=True))
    order = sorted(text.split(), key=lambda word: placed[HEBREW.get(word, word)])
    assert order == seen.split()


def test_every_word_stands_once_in_any_line() -> None:
    directions, of_text = are_right_to_left(["a", "כלב", "1", "b", "אדום", "c"] * 3)
    for start, end in combinations(range(19), 2):
        order = visual_order(directions[start:end], of_text)
        assert sorted(order) == list(range(end - start))


# The first and the last region of the query fit one of the photo's.
FITS, SCORES = {0: 3, 1: 2, 2: 3}, [0.75, 0.5, -0.25]
ASKED: Box = (0.1, 0.1, 0.9, 0.9)


def region_evidence(*, placed: bool = True) -> list[RegionEvidence]:
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


def draw_two(
    name: str = "photo b", box: Box = CELLS[3], *, has_photo: bool = True, placed: bool = True
) -> Image.Image:
    pair = made_pair("", [], []).model_copy(
        update={"match": 0.125, "align": 1.0, "region_evidence": region_evidence(placed=placed)}
    )
    query = ShownPhoto("photo a", (400, 300), Image.new("RGB", (400, 300)), ASKED)
    picture = Image.new("RGB", (300, 400)) if has_photo else None
    return draw_two_photos(pair, query, ShownPhoto(name, (300, 400), picture, box, CELLS[:4]))


def test_regions_that_fit_each_other_have_one_colour() -> None:
    asked, found = paired_regions(region_evidence())
    assert [(each.number, each.letter, each.colour) for each in asked] == [
        (0, "A", PALETTE[0]),
        (1, "B", PALETTE[1]),
        (2, "C", PALETTE[0]),
    ]
    assert [(each.number, each.letter, each.colour, each.box) for each in found] == [
        (3, "A C", PALETTE[0], CELLS[3]),
        (2, "B", PALETTE[1], CELLS[2]),
    ]


@pytest.mark.parametrize("placed", [True, False])
def test_two_photos_stand_side_by_side_with_dashed_boxes_and_their_numbers(
    drawn: Drawn, placed: bool
) -> None:
    picture = draw_two(placed=placed)
    left, right = drawn.photos
    assert left[2] < right[0]
    for frame, ratio in ((left, 4 / 3), (right, 3 / 4)):
        assert (frame[2] - frame[0]) / (frame[3] - frame[1]) == pytest.approx(ratio, abs=0.01)
        assert 0 <= frame[0] < frame[2] <= picture.width
        assert 0 <= frame[1] < frame[3] <= picture.height
    dashed = [box for box, *_, is_dashed in drawn.boxes if is_dashed]
    for box, frame, part in zip(dashed, (left, right), (ASKED, CELLS[3]), strict=True):
        assert box == pytest.approx(within(part, frame), abs=1)  # whole pixels
    (scores,) = [text for text in drawn.said() if "%)" in text]
    assert re.findall(r"([A-C]) (-?\d\.\d+) \((-?\d+) %\)", scores) == [
        ("A", "0.7500", "50"),
        ("B", "0.5000", "33"),
        ("C", "-0.2500", "-17"),
    ]
    assert any("3 regions add up to 1.0000" in text for text in drawn.said())
    assert any("Match score 0.1250" in text for text in drawn.said())


def test_of_two_photos_one_is_missing_has_a_long_name_or_a_thin_box(drawn: Drawn) -> None:
    draw_two(name="photo " + "x" * 500 + "\n\0", box=(0.5, 0.0, 0.501, 1.0), has_photo=False)
    assert len(drawn.photos) == 1
    assert "The photo is not available." in drawn.said()
    assert len(drawn.boxes) > 4
    names = [text for text in drawn.said() if text.startswith("photo")]
    assert len(names) == 2
    assert all(len(name) < 100 for name in names)
