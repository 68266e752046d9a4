"""The evidence for one text and one photo: what a drawing of it shows, and carries as JSON.

Drawings of evidence as PNG files, which also carry the numbers as JSON.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, PngImagePlugin
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aladin_index.search.results import Evidence
from aladin_network.errors import InputError
from aladin_service.evidence.drawing import WHITE


class ExplainedPair(BaseModel):
    """A text and a photo, both stages' scores of the two, and the evidence for the second's."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    text: str
    text_id: str | None = Field(description="Of the index; null for words that were typed.")
    photo_id: str | None = Field(description="Of the index; null for a photo that was uploaded.")
    generation: int = Field(description="Of the index.")
    match: float = Field(description="Cosine of the two embeddings.")
    align: float = Field(description="Sum of the evidence's scores.")
    evidence: list[Evidence] = Field(description="Each word's best region, in the text's order.")


class ExplainedPairs(BaseModel):
    """What a PNG carries as JSON: the pairs that it shows, from top to bottom."""

    pairs: list[ExplainedPair]


# Of the file's text chunk (tEXt).
KEYWORD = "aladin-evidence"

# In print a word is then as large as in a book.
_DOTS_PER_INCH = (220, 220)


def write_png(picture: Image.Image, pairs: Sequence[ExplainedPair]) -> bytes:
    """Write a drawing with the evidence that it shows.

    Args:
        picture: the drawing.
        pairs: that it shows, from top to bottom.
    """
    info = PngImagePlugin.PngInfo()
    evidence = ExplainedPairs(pairs=list(pairs)).model_dump_json(ensure_ascii=True)
    info.add_text(KEYWORD, evidence)
    target = io.BytesIO()
    picture.save(target, "PNG", pnginfo=info, dpi=_DOTS_PER_INCH)
    return target.getvalue()


def read_evidence(png: bytes) -> list[ExplainedPair]:
    """Return the evidence that a drawing shows, with all of its digits.

    Args:
        png: as `write_png` or `stack_pngs` wrote it.

    Raises:
        InputError: this is no such drawing.
    """
    return _open(png)[1]


def stack_pngs(pngs: Sequence[bytes]) -> bytes:
    """Put drawings below one another in one file.

    Args:
        pngs: at least one.

    Raises:
        InputError: one is no drawing of evidence.
    """
    pictures, pairs = zip(*map(_open, pngs), strict=True)
    width = max(picture.width for picture in pictures)
    page = Image.new("RGB", (width, sum(picture.height for picture in pictures)), WHITE)
    y = 0
    for picture in pictures:
        page.paste(picture, ((width - picture.width) // 2, y))
        y += picture.height
    return write_png(page, [pair for each in pairs for pair in each])


def _open(png: bytes) -> tuple[Image.Image, list[ExplainedPair]]:
    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as picture:
            picture.load()
            evidence = picture.info[KEYWORD]
        return picture, ExplainedPairs.model_validate_json(evidence).pairs
    except (OSError, SyntaxError, KeyError, ValidationError) as error:
        raise InputError("this is no drawing of evidence") from error
