"""A page that drawings of evidence are painted on: colours, typeface, boxes and paragraphs.

The colours can be told apart by colour-blind readers, and text on them is legible. The typeface is
DejaVu Sans where the system has it, otherwise Pillow's own, which has the letters of ASCII alone;
missing characters are drawn as an empty box.
"""

from __future__ import annotations

import unicodedata
from functools import cache

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

# From Okabe and Ito ("Color Universal Design", 2008), without black, which is the text colour:
# orange, sky blue, bluish green, reddish purple, yellow, blue, vermilion.
PALETTE: tuple[Colour, ...] = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (204, 121, 167),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
)

MARGIN_PX, NOTE_PX = 32, 17
# The tint of the smallest share, which is still visible on white.
_LEAST = 0.12
_LINE_HEIGHT = 1.5
_TYPEFACE = "DejaVuSans.ttf"
# No font has a glyph for it: Unicode reserves it as a noncharacter.
_NO_CHARACTER = "\uffff"
_DASH_PX, _GAP_PX = 7, 5


class Canvas:
    """A page of a width that is filled from top to bottom; `y` is the end of what it has."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.y: float = MARGIN_PX
        self._resize(1024)

    def text(
        self, x: float, baseline: float, text: str, size_px: int, ink: Colour = FAINT_INK
    ) -> None:
        """Draw a line of text."""
        self._reach(baseline + size_px)
        self._pen.text((x, baseline), text, fill=ink, font=font(size_px), anchor="ls")

    def box(
        self,
        box: PixelBox,
        fill: Colour | None = None,
        outline: Colour | None = None,
        width_px: int = 1,
        *,
        dashed: bool = False,
    ) -> None:
        """Draw a box with a fill, an outline inside of its edge, or both."""
        left, top, right, bottom = box
        self._reach(bottom)
        # Pillow includes the last pixel; regions of extremely narrow photos are thinner than one.
        right, bottom = max(left, right - 1), max(top, bottom - 1)
        draw = self._pen.rectangle
        draw((left, top, right, bottom), fill, None if dashed else outline, width_px)
        if not dashed:
            return
        inner, step = width_px - 1, _DASH_PX + _GAP_PX
        for x in range(round(left), round(right), step):
            end = min(x + _DASH_PX, right)
            draw((x, top, end, top + inner), outline)
            draw((x, bottom - inner, end, bottom), outline)
        for y in range(round(top), round(bottom), step):
            end = min(y + _DASH_PX, bottom)
            draw((left, y, left + inner, end), outline)
            draw((right - inner, y, right, end), outline)

    def photo(self, frame: tuple[int, int, int, int], photo: Image.Image) -> None:
        """Draw an upright RGB photo so that it fills a box."""
        left, top, right, bottom = frame
        self._reach(bottom)
        size = right - left, bottom - top
        self.picture.paste(photo.resize(size, Image.Resampling.LANCZOS), (left, top))

    def write(
        self,
        paragraph: str,
        size_px: int = NOTE_PX,
        above: float = 0,
        left: int = MARGIN_PX,
        width: int | None = None,
    ) -> None:
        """Add a paragraph, broken into lines."""
        self.y += above
        lines: list[str] = []
        for word in paragraph.split(" "):
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and width_px(longer, size_px) <= (width or self.width):
                lines[-1] = longer
            else:
                lines.append(word)
        for line in filter(None, lines):
            self.y += size_px * _LINE_HEIGHT
            baseline = self.y - size_px * (_LINE_HEIGHT - 1)
            self.text(left, baseline, line, size_px, FAINT_INK if size_px == NOTE_PX else INK)

    def finished(self) -> Image.Image:
        """Return the page with a margin below what it has."""
        self._resize(round(self.y) + MARGIN_PX)
        return self.picture

    def _reach(self, bottom: float) -> None:
        if bottom > self.picture.height:
            self._resize(2 * round(bottom))

    def _resize(self, height: int) -> None:
        page = Image.new("RGB", (self.width + 2 * MARGIN_PX, height), WHITE)
        if hasattr(self, "picture"):
            page.paste(self.picture)
        self.picture = page
        self._pen = ImageDraw.Draw(page)


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
