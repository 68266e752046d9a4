from __future__ import annotations

import itertools

import numpy as np
import pytest
from PIL import Image

from aladin_service.evidence import canvas as module
from aladin_service.evidence.canvas import (
    AGAINST,
    FAINT_INK,
    GRID,
    INK,
    PALETTE,
    PANEL,
    WHITE,
    Canvas,
    Colour,
    colour_of,
    font,
    ink_on,
    is_missing,
    printable,
    shortened,
    tint,
    width_px,
)

RED, BLUE = (200, 0, 0), (0, 0, 200)

# What colours become for the colour-blind, in linear RGB (Machado, Oliveira, Fernandes, 2009).
SEEN_BY = {
    "all three cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def linear(colour: Colour) -> np.ndarray:
    scaled = np.array(colour) / 255
    return np.where(scaled <= 0.04045, scaled / 12.92, ((scaled + 0.055) / 1.055) ** 2.4)


def lab(colour: Colour, eyes: object) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as some eyes see it: equal steps look about equally large."""
    seen = np.clip(np.asarray(eyes) @ linear(colour), 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ seen / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: Colour, other: Colour) -> float:
    """The contrast ratio of two colours as WCAG 2 defines it, 1 to 21."""
    darker, lighter = sorted(linear(each) @ [0.2126, 0.7152, 0.0722] for each in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def test_text_can_be_read_on_every_shade_and_a_larger_share_is_darker() -> None:
    shades = {
        colour: [tint(colour, part / 50) for part in range(51)] for colour in (*PALETTE, AGAINST)
    }
    for background in (*itertools.chain(*shades.values()), *PALETTE, PANEL):
        assert contrast(ink_on(background), background) >= 4.5
    for ink, background in ((INK, WHITE), (FAINT_INK, WHITE), (FAINT_INK, PANEL)):
        assert contrast(ink, background) >= 4.5
    for colour, each in shades.items():
        against_white = [contrast(shade, WHITE) for shade in each]
        assert against_white == sorted(against_white)
        assert each[0] != WHITE
        assert each[-1] == colour


@pytest.mark.parametrize("eyes", SEEN_BY)
def test_colours_are_distinguishable_with_any_colour_vision(eyes: str) -> None:
    seen = [lab(colour, SEEN_BY[eyes]) for colour in PALETTE]
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(one - other) > 4 * 2.3  # 2.3 is just noticeable
    assert [colour_of(place) for place in range(9)] == [*PALETTE, *PALETTE[:2]]
    assert len({*PALETTE, INK, GRID, PANEL, AGAINST, WHITE}) == len(PALETTE) + 5


def test_photos_boxes_and_dashes_are_drawn_where_they_say() -> None:
    canvas = Canvas(60)
    canvas.photo((10, 5, 30, 25), Image.new("RGB", (7, 3), RED))
    canvas.box((20, 15, 50, 35), BLUE)
    canvas.box((20, 15, 50, 35), None, RED, 2)
    canvas.box((5, 45, 55, 75), BLUE, RED, 2, dashed=True)
    canvas.box((10, 1980, 20, 2000), BLUE)  # beyond the page so far
    canvas.y = 2000
    picture = canvas.finished()
    assert picture.size == (124, 2032)
    expected = np.full((2032, 124, 3), 255, dtype=np.uint8)
    expected[5:25, 10:30] = RED
    expected[15:35, 20:50] = RED
    expected[17:33, 22:48] = BLUE
    expected[1980:2000, 10:20] = BLUE
    pixels = np.array(picture)
    dashed, pixels[45:75, 5:55] = pixels[45:75, 5:55].copy(), WHITE
    np.testing.assert_array_equal(pixels, expected)
    assert (dashed[2:-2, 2:-2] == BLUE).all()
    for edge in (dashed[0], dashed[-1], dashed[:, 0], dashed[:, -1]):
        assert set(map(tuple, edge.tolist())) == {RED, BLUE}


def test_letters_stand_on_their_baseline_and_a_box_thinner_than_a_pixel_is_a_line() -> None:
    canvas = Canvas(100)
    canvas.text(10, 40, "HE", 30, RED)
    shown = canvas.picture.point(lambda value: 255 - value).getbbox()
    assert shown is not None
    left, top, right, bottom = shown
    assert 10 <= left <= 15
    assert right <= 60
    assert 15 <= top <= 20
    assert bottom == 40
    canvas = Canvas(30)
    canvas.box((5, 4, 25, 4), None, RED, 5)
    canvas.box((10, 6, 10, 16), BLUE)
    canvas.box((20, 6, 20, 16), None, RED, 2, dashed=True)
    seen = [canvas.picture.getpixel(at) for at in ((15, 4), (9, 10), (10, 10), (11, 10), (20, 6))]
    assert seen == [RED, WHITE, BLUE, WHITE, RED]


def test_a_system_without_the_typeface_draws_with_pillows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TYPEFACE", "no such typeface.ttf")
    font.cache_clear()
    assert 50 < width_px("motorcycle", 30) < 250
    assert is_missing("狗")
    font.cache_clear()


def test_characters_that_cannot_be_drawn_or_seen_are_known() -> None:
    texts = ['A red dog\'s "ball" (100 %), -0.5: a+b …', "a 狗", "달리는 개", "a \N{DOG FACE}"]
    assert [is_missing(text) for text in texts] == [False, True, True, True]
    assert printable("a\tb\nc\u00a0d") == "a b c d"
    assert printable("safe\u202etxt.exe\u200b\x07\ud800\ue000") == "safetxt.exe"


def test_a_text_is_cut_where_there_is_no_room() -> None:
    assert shortened("motorcycle", 30, 1000) == "motorcycle"
    for room in (30, 60, 100):
        cut = shortened("motorcycle", 30, room)
        assert cut.endswith("…")
        assert "motorcycle".startswith(cut[:-1])
        assert width_px(cut, 30) <= room
        assert width_px("motorcycle"[: len(cut)] + "…", 30) > room
    # However long it is, no more than could ever have room is looked at.
    assert shortened("i" * 10**7, 30, 100) == shortened("i" * 100, 30, 100)
