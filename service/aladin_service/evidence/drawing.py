"""Colours, typeface and marks of a drawing of evidence, and their rendering to pixels.

A drawing is laid out as data first: a page of marks (texts, rectangles, the photo), which
`draw_page` renders. The colours can be told apart by colour-blind readers, and text on them is
legible.

The typeface is DejaVu Sans, in the folder `fonts` with its licence. It contains the Latin, Greek,
Cyrillic, Hebrew and Arabic alphabets, no Chinese, Japanese or Korean characters, and few emoji;
missing characters are drawn as an empty box.
"""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

BLACK: Colour = (0, 0, 0)
WHITE: Colour = (255, 255, 255)
INK: Colour = (34, 34, 34)
FAINT_INK: Colour = (85, 85, 85)
PANEL: Colour = (238, 238, 238)
GRID: Colour = (190, 190, 190)
# The colour of words that contradict the photo; no region has it.
AGAINST: Colour = (150, 150, 150)

# From Okabe and Ito ("Color Universal Design", 2008), without black, which is the text colour.
PALETTE: tuple[Colour, ...] = (
    (230, 159, 0),  # orange
    (86, 180, 233),  # sky blue
    (0, 158, 115),  # bluish green
    (204, 121, 167),  # reddish purple
    (240, 228, 66),  # yellow
    (0, 114, 178),  # blue
    (213, 94, 0),  # vermilion
)

# The tints of the smallest and of the largest share. The smallest is still visible on white.
_LEAST, _MOST = 0.12, 1.0

_FONTS = Path(__file__).with_name("fonts")
_FILE = _FONTS / "DejaVuSans.ttf"
_BOLD_FILE = _FONTS / "DejaVuSans-Bold.ttf"
# No font has a glyph for it: Unicode reserves it as a noncharacter.
_NO_CHARACTER = "\uffff"
_PROBE_PX = 16


def colour_of(place: int) -> Colour:
    """Return the colour of a region by its number; colours repeat after the last one."""
    return PALETTE[place % len(PALETTE)]


def tint(colour: Colour, strength: float) -> Colour:
    """Mix a colour with white.

    Args:
        colour: Colour of a region.
        strength: From 0 to 1; 1 is the colour itself.
    """
    part = _LEAST + (_MOST - _LEAST) * strength
    red, green, blue = (round(255 + (value - 255) * part) for value in colour)
    return red, green, blue


def ink_on(background: Colour) -> Colour:
    """Return black or white, whichever has more contrast; the contrast is at least 4.5."""
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


@cache
def font(size_px: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Load the typeface at a size.

    Args:
        size_px: Approximate height of a line without line spacing.
        bold: Whether to load the bold weight.
    """
    return ImageFont.truetype(_BOLD_FILE if bold else _FILE, size_px)


def width_px(text: str, size_px: int, bold: bool = False) -> float:
    """Return the width of a line of text."""
    return font(size_px, bold).getlength(text)


def shortened(text: str, size_px: int, most_px: float) -> str:
    """Return a text, truncated with an ellipsis if it is wider than `most_px`."""
    # No letter is narrower than a tenth of its size: this limits the cost of long texts.
    text = text if len(text) <= 10 * most_px else text[: int(10 * most_px)]
    if width_px(text, size_px) <= most_px:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if width_px(text[:middle] + "…", size_px) <= most_px:
            low = middle
        else:
            high = middle - 1
    return text[:low] + "…"


def printable(text: str) -> str:
    """Return a text as one line, without invisible and direction-changing characters."""
    kept = (" " if character.isspace() else character for character in text)
    return "".join(c for c in kept if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))


def is_missing(text: str) -> bool:
    """Return whether the typeface lacks a character of a text."""
    return any(_is_missing(character) for character in set(text) if not character.isspace())


@lru_cache(maxsize=4096)
def _is_missing(character: str) -> bool:
    return _drawn(character) == _drawn(_NO_CHARACTER)


def _drawn(character: str) -> bytes:
    picture = Image.new("1", (3 * _PROBE_PX, 3 * _PROBE_PX))
    ImageDraw.Draw(picture).text((_PROBE_PX, _PROBE_PX), character, fill=1, font=font(_PROBE_PX))
    return picture.tobytes()


# Left, top, right and bottom, in pixels of the page.
PixelBox = tuple[float, float, float, float]


class Text(NamedTuple):
    """A line of text.

    Attributes:
        x: Left edge.
        baseline: Vertical position of the baseline.
        text: Non-empty text.
        size_px: Size of the typeface.
        colour: Colour of the letters.
        bold: Whether the bold weight is used.
    """

    x: float
    baseline: float
    text: str
    size_px: int
    colour: Colour
    bold: bool = False


class Rectangle(NamedTuple):
    """A box.

    Attributes:
        box: Outer edge.
        fill: Fill colour, or None if the rectangle is transparent.
        outline: Outline colour, or None if there is no outline.
        width_px: Width of the outline.
        dashed: Whether the outline is dashed.
    """

    box: PixelBox
    fill: Colour | None = None
    outline: Colour | None = None
    width_px: int = 1
    dashed: bool = False


class Photo(NamedTuple):
    """The place of a photo.

    Attributes:
        box: Area that the photo fills.
        place: Number of the photo among those of the page.
    """

    box: PixelBox
    place: int = 0


Mark = Text | Rectangle | Photo


class Page(NamedTuple):
    """A laid-out drawing.

    Attributes:
        width_px: Width of the drawing.
        height_px: Height of the drawing.
        marks: Marks in drawing order, from back to front.
    """

    width_px: int
    height_px: int
    marks: tuple[Mark, ...]

    @property
    def texts(self) -> list[str]:
        """All texts of the page, in drawing order."""
        return [mark.text for mark in self.marks if isinstance(mark, Text)]


_DASH_PX, _GAP_PX = 7, 5


def draw_page(page: Page, *photos: Image.Image | None) -> Image.Image:
    """Render a page.

    Args:
        page: Page to render.
        photos: Upright RGB photos of any size; None only where the page has no place for one.

    Returns:
        RGB image of the page's size.
    """
    picture = Image.new("RGB", (page.width_px, page.height_px), WHITE)
    pen = ImageDraw.Draw(picture)
    for mark in page.marks:
        match mark:
            case Text():
                pen.text(
                    (mark.x, mark.baseline),
                    mark.text,
                    fill=mark.colour,
                    font=font(mark.size_px, mark.bold),
                    anchor="ls",
                )
            case Rectangle():
                _draw_rectangle(pen, mark)
            case Photo():
                photo = photos[mark.place]
                assert photo is not None  # the page has a place for it
                left, top, right, bottom = (round(edge) for edge in mark.box)
                size = right - left, bottom - top
                picture.paste(photo.resize(size, Image.Resampling.LANCZOS), (left, top))
    return picture


def _draw_rectangle(pen: ImageDraw.ImageDraw, mark: Rectangle) -> None:
    left, top, right, bottom = mark.box
    # Pillow includes the last pixel; regions of extremely narrow photos are thinner than a pixel.
    edges = (left, top, max(left, right - 1), max(top, bottom - 1))
    if not mark.dashed:
        pen.rectangle(edges, fill=mark.fill, outline=mark.outline, width=mark.width_px)
        return
    pen.rectangle(edges, fill=mark.fill)
    if mark.outline is not None:
        _draw_dashes(pen, edges, mark.outline, mark.width_px)


def _draw_dashes(pen: ImageDraw.ImageDraw, edges: PixelBox, colour: Colour, width_px: int) -> None:
    left, top, right, bottom = edges
    step = _DASH_PX + _GAP_PX
    for x in range(round(left), round(right), step):
        end = min(x + _DASH_PX, right)
        pen.rectangle((x, top, end, top + width_px - 1), fill=colour)
        pen.rectangle((x, bottom - width_px + 1, end, bottom), fill=colour)
    for y in range(round(top), round(bottom), step):
        end = min(y + _DASH_PX, bottom)
        pen.rectangle((left, y, left + width_px - 1, end), fill=colour)
        pen.rectangle((right - width_px + 1, y, right, end), fill=colour)
