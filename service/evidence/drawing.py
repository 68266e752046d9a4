"""From a page of marks to pixels."""

from __future__ import annotations

from PIL import Image, ImageDraw

from service.evidence.colours import WHITE, Colour
from service.evidence.fonts import font
from service.evidence.marks import Page, Photo, PixelBox, Rectangle, Text

_DASH_PX, _GAP_PX = 7, 5


def draw_page(page: Page, photo: Image.Image | None) -> Image.Image:
    """Draw a page.

    Args:
        page: its marks.
        photo: upright RGB, of any size; None only where the page has no place for one.

    Returns:
        RGB, of the page's size.
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
                assert photo is not None  # as the page was laid out
                left, top, right, bottom = (round(edge) for edge in mark.box)
                size = right - left, bottom - top
                picture.paste(photo.resize(size, Image.Resampling.LANCZOS), (left, top))
    return picture


def _draw_rectangle(pen: ImageDraw.ImageDraw, mark: Rectangle) -> None:
    left, top, right, bottom = mark.box
    # Pillow draws the last pixel too; a region of a photo like a thread is thinner than one.
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
