"""What is being searched."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from service.http.errors import error_docs
from service.http.state import Engine, Service

router = APIRouter(prefix="/v1/index", tags=["index"])


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


@router.get("", responses=error_docs(429, 503))
async def get_index(engine: Engine, service: Service) -> LiveIndexInfo:
    """Describe the live generation, with what was added and deleted since it was built."""
    info = LiveIndexInfo.model_validate(engine.manifest)
    if info.images is not None:
        info.images.count = await service.pool.run(engine.count, "images")
    if info.texts is not None:
        info.texts.count = await service.pool.run(engine.count, "texts")
    return info
