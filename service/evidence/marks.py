"""What is drawn where, as data: a page of marks, which a drawing makes into pixels."""

from __future__ import annotations

from typing import NamedTuple

from service.evidence.colours import Colour

# Left, top, right, bottom, in pixels of the page.
PixelBox = tuple[float, float, float, float]


class Text(NamedTuple):
    """A line of text.

    Attributes:
        x: where it begins.
        baseline: where its letters stand.
        text: never empty.
        size_px: of the typeface.
        colour: of the letters.
        bold: whether in the bold cut.
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
        box: its outer edge.
        fill: None: what is below shows.
        outline: None: it has none.
        width_px: of the outline.
        dashed: whether the outline is.
    """

    box: PixelBox
    fill: Colour | None = None
    outline: Colour | None = None
    width_px: int = 1
    dashed: bool = False


class Photo(NamedTuple):
    """The photo.

    Attributes:
        box: that it fills.
    """

    box: PixelBox


Mark = Text | Rectangle | Photo


class Page(NamedTuple):
    """Everything that is drawn, from the back to the front.

    Attributes:
        width_px: of the whole.
        height_px: of the whole.
        marks: in the order in which they are drawn.
    """

    width_px: int
    height_px: int
    marks: tuple[Mark, ...]

    @property
    def texts(self) -> list[str]:
        """What can be read on it, in the order in which it is drawn."""
        return [mark.text for mark in self.marks if isinstance(mark, Text)]
