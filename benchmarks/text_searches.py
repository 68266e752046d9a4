"""Searches of synthetic photos by texts that are encoded already."""

from __future__ import annotations

import torch

from aladin.encoding import Encoding
from benchmarks.synthetic import TextQueries
from index.results import SearchResult
from index.searcher import TwoStageSearcher

CANDIDATES = 100
TOP = 10


class TextSearches:
    """Searches photos with ready-encoded texts, by their numbers."""

    def __init__(self, searcher: TwoStageSearcher, queries: TextQueries) -> None:
        """Search with `queries`."""
        self._searcher = searcher
        self.queries = queries
        self.words = [torch.from_numpy(words) for words in queries.words]
        self._encodings = [
            Encoding(
                torch.from_numpy(embedding).unsqueeze(0),
                words.unsqueeze(0),
                torch.ones(1, len(words), dtype=torch.bool),
            )
            for embedding, words in zip(queries.embeddings, self.words, strict=True)
        ]

    def search(self, turn: int, candidates: int) -> SearchResult:
        """Search with query number `turn`, and from the first on again after the last."""
        return self._searcher.search(
            self._encodings[turn % len(self._encodings)],
            "text",
            "images",
            top_k=TOP,
            num_candidates=candidates,
            fusion=1.0,
        )
