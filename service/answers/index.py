"""What the HTTP service answers about the index as a whole."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class FirstStage(_Part):
    """The ANN of one side."""

    factory: str
    search_width: int | None
    oversample: float
    recall: float
    recall_at: int


class TunedCandidates(_Part):
    """The number of candidates that `aladin index tune` chose."""

    candidates: int
    fidelity: float
    at: int


class IndexSide(_Part):
    """The images, or the texts."""

    count: int = Field(description="Items that a search may find, added ones included.")
    left_out: int
    embedding_dim: int
    token_dim: int
    token_count: int
    token_dtype: str
    ann: FirstStage
    tuning: TunedCandidates | None


class IndexModel(_Part):
    """The model that made the index."""

    id: str


class LiveIndexInfo(_Part):
    """The live generation; a side that it does not have is null."""

    generation: int
    default_candidates: int
    model: IndexModel
    images: IndexSide | None
    texts: IndexSide | None
