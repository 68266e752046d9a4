"""Colours, typeface and marks of a drawing of evidence, and their rendering to pixels.

A drawing is laid out as data first: a page of marks (texts, rectangles, photos), which `draw_page`
renders. The colours can be told apart by colour-blind readers, and text on them is legible.

The typeface is DejaVu Sans where the system has it, otherwise Pillow's own, which has the letters
of ASCII alone; missing characters are drawn as an empty box.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
# Left, top, right and bottom, in pixels of the page.
PixelBox = tuple[float, float, float, float]

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

# The tint of the smallest share, which is still visible on white.
_LEAST = 0.12
_TYPEFACE = "DejaVuSans.ttf"
# No font has a glyph for it: Unicode reserves it as a noncharacter.
_NO_CHARACTER = "\uffff"
_DASH_PX, _GAP_PX = 7, 5


class Text(NamedTuple):
    """A line of text, with its left edge and its baseline."""

    x: float
    baseline: float
    text: str
    size_px: int
    colour: Colour = FAINT_INK


class Rectangle(NamedTuple):
    """A box with a fill, an outline inside of its edge, or both."""

    box: PixelBox
    fill: Colour | None = None
    outline: Colour | None = None
    width_px: int = 1
    dashed: bool = False


class Photo(NamedTuple):
    """The area that a photo fills; `place` is its number among those of the page."""

    box: PixelBox
    place: int = 0


Mark = Text | Rectangle | Photo


class Page(NamedTuple):
    """A laid-out drawing: its size, and its marks from back to front."""

    width_px: int
    height_px: int
    marks: tuple[Mark, ...]

    @property
    def texts(self) -> list[str]:
        """All texts of the page, in drawing order."""
        return [mark.text for mark in self.marks if isinstance(mark, Text)]


def colour_of(place: int) -> Colour:
    """Return the colour of a region by its number; colours repeat after the last one."""
    return PALETTE[place % len(PALETTE)]


def tint(colour: Colour, strength: float) -> Colour:
    """Mix a colour with white; with a strength of 1 it stays itself."""
    part = _LEAST + (1 - _LEAST) * strength
    red, green, blue = (round(255 + (value - 255) * part) for value in colour)
    return red, green, blue


def ink_on(background: Colour) -> Colour:
    """Return black or white, whichever has more contrast, which is then at least 4.5 (WCAG 2)."""
    red, green, blue = ((value / 255) ** 2.2 for value in background)
    return BLACK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else WHITE


@cache
def font(size_px: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Load the typeface at a size."""
    try:
        return ImageFont.truetype(_TYPEFACE, size_px)
    except OSError:  # the system does not have it
        return ImageFont.load_default(size_px)


def width_px(text: str, size_px: int) -> float:
    """Return the width of a line of text."""
    return font(size_px).getlength(text)


def shortened(text: str, size_px: int, most_px: float) -> str:
    """Return a text, truncated with an ellipsis if it is wider than `most_px`."""
    # No letter is narrower than a tenth of its size: this limits the cost of long texts.
    text = text[: int(10 * most_px)]
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
    nothing = _drawn(_NO_CHARACTER)
    return any(_drawn(character) == nothing for character in set(text) if not character.isspace())


def _drawn(character: str) -> bytes:
    picture = Image.new("1", (48, 48))
    ImageDraw.Draw(picture).text((16, 16), character, fill=1, font=font(16))
    return picture.tobytes()


def draw_page(page: Page, *photos: Image.Image | None) -> Image.Image:
    """Render a page; photos are upright RGB, and None only where the page has no place for one."""
    picture = Image.new("RGB", (page.width_px, page.height_px), WHITE)
    pen = ImageDraw.Draw(picture)
    for mark in page.marks:
        match mark:
            case Text(x, baseline, text, size_px, colour):
                pen.text((x, baseline), text, fill=colour, font=font(size_px), anchor="ls")
            case Rectangle():
                _draw_rectangle(pen, mark)
            case Photo(box, place):
                photo = photos[place]
                assert photo is not None  # the page has a place for it
                left, top, right, bottom = (round(edge) for edge in box)
                size = right - left, bottom - top
                picture.paste(photo.resize(size, Image.Resampling.LANCZOS), (left, top))
    return picture


def _draw_rectangle(pen: ImageDraw.ImageDraw, mark: Rectangle) -> None:
    left, top, right, bottom = mark.box
    # Pillow includes the last pixel; regions of extremely narrow photos are thinner than a pixel.
    right, bottom = max(left, right - 1), max(top, bottom - 1)
    outline = None if mark.dashed else mark.outline
    pen.rectangle((left, top, right, bottom), mark.fill, outline, mark.width_px)
    if not mark.dashed:
        return
    inner, step = mark.width_px - 1, _DASH_PX + _GAP_PX
    for x in range(round(left), round(right), step):
        end = min(x + _DASH_PX, right)
        pen.rectangle((x, top, end, top + inner), mark.outline)
        pen.rectangle((x, bottom - inner, end, bottom), mark.outline)
    for y in range(round(top), round(bottom), step):
        end = min(y + _DASH_PX, bottom)
        pen.rectangle((left, y, left + inner, end), mark.outline)
        pen.rectangle((right - inner, y, right, end), mark.outline)
