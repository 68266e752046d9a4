"""The evidence for one text and one photo: what a drawing of it shows, and carries as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from service.answers.search import Evidence


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
