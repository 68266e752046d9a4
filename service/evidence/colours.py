"""The colours of a drawing of evidence: for all kinds of eyes, and with text that can be read."""

from __future__ import annotations

Colour = tuple[int, int, int]

BLACK: Colour = (0, 0, 0)
WHITE: Colour = (255, 255, 255)
INK: Colour = (34, 34, 34)
FAINT_INK: Colour = (85, 85, 85)
PANEL: Colour = (238, 238, 238)
GRID: Colour = (190, 190, 190)
# Of words that speak against the photo: no region's colour.
AGAINST: Colour = (150, 150, 150)

# Of Okabe and Ito ("Color Universal Design", 2008), without black, which is the ink.
PALETTE: tuple[Colour, ...] = (
    (230, 159, 0),  # orange
    (86, 180, 233),  # sky blue
    (0, 158, 115),  # bluish green
    (204, 121, 167),  # reddish purple
    (240, 228, 66),  # yellow
    (0, 114, 178),  # blue
    (213, 94, 0),  # vermilion
)

# Tints of a colour: of the least share and of the largest. The least is still seen on white.
_LEAST, _MOST = 0.12, 1.0


def colour_of(place: int) -> Colour:
    """Return the colour of the region at a place; after the last colour the first comes again."""
    return PALETTE[place % len(PALETTE)]


def tint(colour: Colour, strength: float) -> Colour:
    """Mix a colour with white.

    Args:
        colour: of a region.
        strength: 0 to 1; 1 gives the colour itself.
    """
    part = _LEAST + (_MOST - _LEAST) * strength
    red, green, blue = (round(255 + (value - 255) * part) for value in colour)
    return red, green, blue


def ink_on(background: Colour) -> Colour:
    """Return black or white, whichever is read better; the contrast is never below 4.5."""
    return max((BLACK, WHITE), key=lambda ink: contrast(ink, background))


def contrast(one: Colour, other: Colour) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it, 1 to 21.

    >>> round(contrast((0, 0, 0), (255, 255, 255)), 1)
    21.0
    """
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Colour) -> float:
    red, green, blue = (_linear(value / 255) for value in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(value: float) -> float:
    """Undo the gamma of sRGB."""
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
