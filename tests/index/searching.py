"""A search with keyword arguments of the query and of its options alike."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import SEARCH_ANSWER, HitStages, SearchAnswer, SearchHit, Stage
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality, Target


def run_search(
    searcher: TwoStageSearcher,
    encoding: Encoding,
    modality: Modality,
    target: Target,
    *,
    text: str | None = None,
    size_px: tuple[int, int] | None = None,
    boxes: NDArray[np.float32] | None = None,
    own_id: str | None = None,
    deadline_s: float | None = None,
    **options: Any,
) -> SearchAnswer:
    """Search with one encoded item and fields of `SearchOptions`; the end by `time.monotonic`."""
    query = Term(encoding, modality, text, size_px, boxes, own_id=own_id)
    if deadline_s is None:
        return searcher.search(query, target, SearchOptions(**options))
    options = {**options, "timeout_ms": 1.0}
    return searcher.search(query, target, SearchOptions(**options), deadline_s - 0.001)


def bare_hit(rank: int, score: float, item_id: str = "", **metadata: Any) -> SearchHit:
    """Make a hit of no index."""
    stages = HitStages(match=Stage(rank=rank, score=score), align=None)
    fields = {"per_word": None, "uri": None, "text": None, "evidence": None}
    hit_id = item_id or str(rank)
    return SearchHit(id=hit_id, rank=rank, score=score, stages=stages, metadata=metadata, **fields)


def assert_typed(answer: SearchAnswer) -> None:
    """Assert that all values are of Python's own types, and of those of their fields."""
    SEARCH_ANSWER.dump_json(answer, warnings="error")
    values: list[Any] = [asdict(answer)]
    while values:
        value = values.pop()
        assert type(value) in {dict, list, tuple, str, int, float, bool, type(None)}, value
        values += value.values() if isinstance(value, dict) else ()
        values += value if isinstance(value, (list, tuple)) else ()
