"""What is being searched."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from service.http.errors import error_docs
from service.http.state import Service
from service.work.index_jobs import DescribeIndex

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
async def get_index(service: Service) -> LiveIndexInfo:
    """Describe the live generation, with what was added and deleted since it was built."""
    state = await service.workers.call(DescribeIndex())
    info = LiveIndexInfo.model_validate(state.manifest)
    for target, count in state.counts.items():
        side = info.images if target == "images" else info.texts
        assert side is not None  # counted because it is there
        side.count = count
    return info
