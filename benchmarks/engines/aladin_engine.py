"""This project's index: built as an import builds it, and searched as the service searches it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.generations.reader import open_index
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import EncodedQuery
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.scoring.scores import Encoding
from benchmarks.engines.task import CANDIDATES, TOP, Task
from benchmarks.lib.synthetic import SyntheticPhotos, write_synthetic_index
from benchmarks.lib.synthetic_sources import find_source


def build(folder: Path, items: int, source: Path | None) -> dict[str, Any]:
    """Build the index with int8 tokens; the seconds that it took."""
    photos = SyntheticPhotos(find_source(source))
    seconds = write_synthetic_index(folder, photos, items, BuildSettings(token_dtype="int8"))
    return {"build_s": sum(took for stage, took in seconds.items() if stage != "draw")}


class AladinEngine:
    """Searches in two stages, the alignment alone deciding the order."""

    def __init__(self, folder: Path) -> None:
        """Open the index in `folder`."""
        self._index = open_index(folder)
        self._index.warm()  # as `serve --warm` does; Qdrant reads its files ahead unasked
        self._searcher = TwoStageSearcher(self._index)
        self._side = self._index.side("images")

    def settings(self) -> str:
        """Say how it searches."""
        ann = self._side.entry.ann
        width = "" if ann.search_width is None else f" width {ann.search_width}"
        return f"{ann.factory}{width}, int8 tokens"

    def tune(self, task: Task) -> None:
        """Keep what the build chose for a recall of 0.99, its default."""

    def candidates(self, embedding: NDArray[np.float32]) -> Sequence[int]:
        """Find the `CANDIDATES` nearest photos."""
        return self._side.order(embedding, CANDIDATES, CANDIDATES).rows.tolist()

    def search(self, task: Task, query: int, filtered: bool) -> Sequence[int]:
        """Find the `TOP` photos for a query, best first; its window alone where `filtered`."""
        window = task.windows[query]
        words = torch.from_numpy(task.queries.words[query])
        encoding = Encoding(
            torch.from_numpy(task.queries.embeddings[query]).unsqueeze(0),
            words.unsqueeze(0),
            torch.ones(1, len(words), dtype=torch.bool),
        )
        result = self._searcher.search(
            EncodedQuery(encoding, "text"),
            "images",
            SearchOptions(
                k=TOP,
                candidates=CANDIDATES,
                fusion=1.0,
                filter={"number": {"gte": window.start, "lt": window.stop}} if filtered else {},
            ),
        )
        return [int(hit.metadata["number"]) for hit in result.hits]
