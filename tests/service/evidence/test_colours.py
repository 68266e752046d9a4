from __future__ import annotations

import itertools

import numpy as np
import pytest

from aladin_service.evidence.drawing import (
    AGAINST,
    FAINT_INK,
    GRID,
    INK,
    PALETTE,
    PANEL,
    WHITE,
    Colour,
    colour_of,
    ink_on,
    tint,
)

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


def lab(colour: Colour, eyes: object) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as some eyes see it: equal steps look about equally large."""
    scaled = np.array(colour) / 255
    linear = np.where(scaled <= 0.04045, scaled / 12.92, ((scaled + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(eyes) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ seen / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: Colour, other: Colour) -> float:
    """The contrast ratio of two colours as WCAG 2 defines it, 1 to 21."""
    scaled = np.array([one, other]) / 255
    linear = np.where(scaled <= 0.04045, scaled / 12.92, ((scaled + 0.055) / 1.055) ** 2.4)
    darker, lighter = sorted(linear @ [0.2126, 0.7152, 0.0722])
    return (lighter + 0.05) / (darker + 0.05)


def test_text_can_be_read_on_every_shade_of_every_colour() -> None:
    shades = [tint(colour, part / 50) for colour in (*PALETTE, AGAINST) for part in range(51)]
    for background in (*shades, *PALETTE, PANEL):
        assert contrast(ink_on(background), background) >= 4.5
    for ink, background in ((INK, WHITE), (FAINT_INK, WHITE), (FAINT_INK, PANEL)):
        assert contrast(ink, background) >= 4.5


@pytest.mark.parametrize("eyes", SEEN_BY)
def test_colours_are_distinguishable_with_any_colour_vision(eyes: str) -> None:
    seen = [lab(colour, SEEN_BY[eyes]) for colour in PALETTE]
    for one, other in itertools.combinations(seen, 2):
        # A difference of 2.3 is just noticeable.
        assert np.linalg.norm(one - other) > 4 * 2.3


def test_a_larger_share_is_darker_and_the_largest_is_the_colour_itself() -> None:
    for colour in PALETTE:
        shades = [tint(colour, part / 10) for part in range(11)]
        against_white = [contrast(shade, WHITE) for shade in shades]
        assert against_white == sorted(against_white)
        assert shades[0] != WHITE
        assert shades[-1] == colour


def test_colours_repeat_after_the_last_one() -> None:
    assert [colour_of(place) for place in range(9)] == [*PALETTE, *PALETTE[:2]]
    assert len({*PALETTE, INK, GRID, PANEL, AGAINST, WHITE}) == len(PALETTE) + 5
