"""Pairs with made-up evidence, and what a drawing of them has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from PIL import Image

from aladin_index.search.results import Box, Evidence
from aladin_service.evidence.canvas import Canvas, Colour, PixelBox, width_px
from aladin_service.evidence.png import ExplainedPair

# A grid of 2 x 2 cells, and the whole photo.
CELLS: list[Box] = [
    (0.0, 0.0, 0.5, 0.5),
    (0.5, 0.0, 1.0, 0.5),
    (0.0, 0.5, 0.5, 1.0),
    (0.5, 0.5, 1.0, 1.0),
    (0.0, 0.0, 1.0, 1.0),
]


def made_pair(
    text: str,
    regions: Sequence[int],
    scores: Sequence[float],
    *,
    placed: bool = True,
    spans: Sequence[tuple[int, int]] | None = None,
) -> ExplainedPair:
    """Make a pair: ``made_pair("a red dog", regions=[4, 1, 1], scores=[0.1, 0.4, 0.5])``."""
    found = spans or [match.span() for match in re.finditer(r"\S+", text)]
    sizes = sum(abs(score) for score in scores) or 1.0
    evidence = [
        Evidence(
            token=text[start:end],
            start=start,
            end=end,
            region=region,
            box=CELLS[region] if placed else None,
            score=score,
            share=score / sizes,
        )
        for (start, end), region, score in zip(found, regions, scores, strict=False)
    ]
    about = {"text_id": None, "photo_id": "a photo", "generation": 1, "match": 0.25}
    return ExplainedPair(text=text, align=sum(scores), evidence=evidence, **about)


class Drawn(NamedTuple):
    """What was drawn, in its order: texts with their size, place and ink; boxes; photos."""

    texts: list[tuple[str, int, PixelBox, Colour]]
    boxes: list[tuple[PixelBox, Colour | None, Colour | None, int, bool]]
    photos: list[PixelBox]

    def said(self, size_px: int | None = None) -> list[str]:
        return [text for text, size, *_ in self.texts if size_px in (None, size)]

    def places(self, size_px: int) -> list[PixelBox]:
        return [place for _, size, place, _ in self.texts if size == size_px]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Notes what is drawn from now on."""
    seen = Drawn([], [], [])
    draw_text, draw_box, draw_photo = Canvas.text, Canvas.box, Canvas.photo
    faint = (85, 85, 85)

    def text(
        canvas: Canvas, x: float, baseline: float, words: str, size: int, ink: Colour = faint
    ) -> None:
        place = (x, baseline - size, x + width_px(words, size), baseline)
        seen.texts.append((words, size, place, ink))
        draw_text(canvas, x, baseline, words, size, ink)

    def box(
        canvas: Canvas,
        box: PixelBox,
        fill: Colour | None = None,
        outline: Colour | None = None,
        width: int = 1,
        *,
        dashed: bool = False,
    ) -> None:
        seen.boxes.append((box, fill, outline, width, dashed))
        draw_box(canvas, box, fill, outline, width, dashed=dashed)

    def photo(canvas: Canvas, frame: tuple[int, int, int, int], picture: Image.Image) -> None:
        seen.photos.append(frame)
        draw_photo(canvas, frame, picture)

    for name, noted in (("text", text), ("box", box), ("photo", photo)):
        monkeypatch.setattr(Canvas, name, noted)
    return seen
