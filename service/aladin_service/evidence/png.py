"""The evidence for a pair of a text and a photo, and PNG files with its drawing and data."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, PngImagePlugin
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aladin_index.search.results import Box, Evidence, RegionEvidence
from aladin_network.errors import InputError
from aladin_service.evidence.canvas import WHITE

# Keyword of the text chunk (tEXt) with the JSON data.
KEYWORD = "aladin-evidence"

# Printed at this resolution, words have the size of a book's text.
_DOTS_PER_INCH = (220, 220)


class ExplainedPair(BaseModel):
    """A text and a photo, or two photos: both stages' scores, and the evidence of the alignment."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    text: str
    text_id: str | None = Field(
        description="Item id of the text, or null if the text was given in the query."
    )
    photo_id: str | None = Field(
        description="Item id of the photo, or null if the photo was uploaded."
    )
    generation: int = Field(description="Generation of the index.")
    match: float = Field(description="Cosine of the two embeddings.")
    align: float = Field(description="Alignment score, the sum of the scores of the evidence.")
    evidence: list[Evidence] = Field(
        description="Best region of each word, in the order of the text; empty for two photos."
    )
    box: Box | None = Field(
        default=None, description="Part of the query's photo that was compared, if given."
    )
    query_photo_id: str | None = Field(
        default=None,
        description="Item id of the query's photo where two photos are compared, or null if it was"
        " uploaded.",
    )
    found: Box | None = Field(
        default=None, description="Where the box was found, if two photos are compared."
    )
    region_evidence: list[RegionEvidence] | None = Field(
        default=None, description="Best region for each region of the query's photo in the box."
    )


class ExplainedPairs(BaseModel):
    """The JSON data in a PNG file: the pairs that it shows, from top to bottom."""

    pairs: list[ExplainedPair]


def write_png(picture: Image.Image, pairs: Sequence[ExplainedPair]) -> bytes:
    """Write a drawing and the evidence of its pairs, from top to bottom, as a PNG file."""
    info = PngImagePlugin.PngInfo()
    evidence = ExplainedPairs(pairs=list(pairs)).model_dump_json(ensure_ascii=True)
    info.add_text(KEYWORD, evidence)
    target = io.BytesIO()
    picture.save(target, "PNG", pnginfo=info, dpi=_DOTS_PER_INCH)
    return target.getvalue()


def read_evidence(png: bytes) -> list[ExplainedPair]:
    """Read the evidence in a PNG file, at full precision; InputError if it has none."""
    return _open(png)[1]


def stack_pngs(pngs: Sequence[bytes]) -> bytes:
    """Combine drawings, at least one, into one file, one below the other."""
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
        raise InputError("not a drawing of evidence") from error
