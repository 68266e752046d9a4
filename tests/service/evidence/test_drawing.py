from __future__ import annotations

from PIL import Image

from aladin_service.evidence.drawing import Page, Photo, Rectangle, Text, draw_page

RED, BLUE, WHITE = (200, 0, 0), (0, 0, 200), (255, 255, 255)


def test_marks_are_drawn_where_they_say() -> None:
    photo = Image.new("RGB", (7, 3), RED)
    page = Page(
        60,
        40,
        (
            Photo((10, 5, 30, 25)),
            Rectangle((20, 15, 50, 35), fill=BLUE),
            Rectangle((20, 15, 50, 35), outline=RED, width_px=2),
        ),
    )
    picture = draw_page(page, photo)
    assert (picture.size, picture.mode) == ((60, 40), "RGB")
    for x in range(60):
        for y in range(40):
            expected = WHITE
            if 10 <= x < 30 and 5 <= y < 25:
                expected = RED
            if 20 <= x < 50 and 15 <= y < 35:
                inside = 22 <= x < 48 and 17 <= y < 33
                expected = BLUE if inside else RED
            assert picture.getpixel((x, y)) == expected, (x, y)


def test_dashes_leave_gaps_and_keep_inside() -> None:
    box = (5, 5, 55, 35)
    page = Page(60, 40, (Rectangle(box, fill=BLUE, outline=RED, width_px=2, dashed=True),))
    picture = draw_page(page, None)
    edge = [picture.getpixel((x, 5)) for x in range(5, 55)]
    assert set(edge) == {RED, BLUE}
    for x in range(60):
        for y in range(40):
            if not (5 <= x < 55 and 5 <= y < 35):
                assert picture.getpixel((x, y)) == WHITE
            elif 7 <= x < 53 and 7 <= y < 33:
                assert picture.getpixel((x, y)) == BLUE


def test_letters_stand_on_their_baseline() -> None:
    picture = draw_page(Page(100, 60, (Text(10, 40, "HE", 30, RED),)), None)
    left, top, right, bottom = picture.point(lambda value: 255 - value).getbbox() or (0, 0, 0, 0)
    assert 10 <= left <= 15
    assert right <= 60
    assert 15 <= top <= 20
    assert bottom == 40


def test_a_box_thinner_than_a_pixel_is_a_line() -> None:
    page = Page(
        30,
        20,
        (
            Rectangle((5, 4, 25, 4), outline=RED, width_px=5),
            Rectangle((10, 6, 10, 16), fill=BLUE),
            Rectangle((20, 6, 20, 16), outline=RED, width_px=2, dashed=True),
        ),
    )
    picture = draw_page(page, None)
    assert picture.getpixel((15, 4)) == RED
    assert [picture.getpixel((x, 10)) for x in (9, 10, 11)] == [WHITE, BLUE, WHITE]
    assert picture.getpixel((20, 6)) == RED
