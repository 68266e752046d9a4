"""The one typeface of the drawings: DejaVu Sans, which comes with matplotlib.

It has the Latin, Greek, Cyrillic, Hebrew and Arabic alphabets, and no Chinese, Japanese or Korean
characters and few emoji: these are drawn as the empty box that stands for a missing character.
"""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_FILE = "DejaVuSans.ttf"
_BOLD_FILE = "DejaVuSans-Bold.ttf"
# No font has a glyph for it: Unicode keeps it free of characters.
_NO_CHARACTER = "\uffff"
_PROBE_PX = 16


@cache
def font(size_px: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return the typeface at a size.

    Args:
        size_px: height of a line without what is between lines, about.
        bold: the bold cut.
    """
    return ImageFont.truetype(_folder() / (_BOLD_FILE if bold else _FILE), size_px)


def width_px(text: str, size_px: int, bold: bool = False) -> float:
    """Return how wide a line of text is."""
    return font(size_px, bold).getlength(text)


def shortened(text: str, size_px: int, most_px: float) -> str:
    """Return a text, cut and ended by an ellipsis where it is wider than `most_px`."""
    # No letter is narrower than a tenth of its size, so that long texts cost no more than others.
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
    """Return a text as one line: without what has no picture of its own, or turns others around."""
    kept = (" " if character.isspace() else character for character in text)
    return "".join(c for c in kept if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))


def is_missing(text: str) -> bool:
    """Whether the typeface lacks a character of a text."""
    return any(_is_missing(character) for character in set(text) if not character.isspace())


@lru_cache(maxsize=4096)
def _is_missing(character: str) -> bool:
    return _drawn(character) == _drawn(_NO_CHARACTER)


def _drawn(character: str) -> bytes:
    picture = Image.new("1", (3 * _PROBE_PX, 3 * _PROBE_PX))
    ImageDraw.Draw(picture).text((_PROBE_PX, _PROBE_PX), character, fill=1, font=font(_PROBE_PX))
    return picture.tobytes()


@cache
def _folder() -> Path:
    # Not by importing it: matplotlib takes longer to load than a drawing to draw.
    spec = find_spec("matplotlib")
    assert spec is not None  # a dependency
    assert spec.origin is not None
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"
