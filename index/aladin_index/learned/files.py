"""The fitted first stage of a collection: what it is made of, its files, and their writing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.first_stage_build import build_best, factories_to_try
from aladin_index.format.layout import EMBEDDINGS
from aladin_index.format.manifest import CollectionEntry, LearnedEntry
from aladin_index.format.npy import NpyWriter, map_npy
from aladin_index.learned.fit import LearnedStage
from aladin_index.learned.weights import Weights
from aladin_index.settings import BuildSettings
from aladin_index.tokens.store import TokenStore
from aladin_network.scoring.token_rows import TokenRows
from aladin_network.types import Progress

LEARNED_ANN, LEARNED_VECTORS = "learned.faiss", "learned.npy"
LEARNED_FIT, LEARNED_QUERIES = "learned.safetensors", "learned_queries.npy"
LEARNED_FILES = (LEARNED_ANN, LEARNED_VECTORS, LEARNED_FIT, LEARNED_QUERIES)

# Photos that are fitted at a time.
_PHOTOS_AT_A_TIME = 1024


@dataclass(frozen=True, kw_only=True)
class FirstStageFit:
    """What the first stage of any photos of an index is made of.

    Attributes:
        fit: Fitted parameters.
        weights: Weights of both parts.
        queries: (queries, both) float32, vectors of texts that the FAISS index is tuned with.
    """

    fit: LearnedStage
    weights: Weights
    queries: NDArray[np.float32]

    def vectors(
        self, embeddings: NDArray[np.float32], store: TokenStore
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the vectors of all photos of a store, some at a time.

        Args:
            embeddings: (photos, width) their embeddings, with biases if there are any.
            store: Tokens of the photos.
        """
        for start in range(0, store.count, _PHOTOS_AT_A_TIME):
            rows = np.arange(start, min(start + _PHOTOS_AT_A_TIME, store.count), dtype=np.int64)
            learned = self.fit.photo_vectors(TokenRows(*store.read(rows)))
            yield self.weights.items(embeddings[rows], learned)


def write_learned(
    folder: Path,
    fitted: FirstStageFit,
    entry: CollectionEntry,
    settings: BuildSettings,
    progress: Progress,
) -> CollectionEntry:
    """Fit all photos of a collection, and write the files of the first stage.

    Args:
        folder: Folder of the collection, with its embeddings and tokens.
        fitted: What the first stage is made of.
        entry: Entry of the collection.
        settings: Settings of FAISS and of the candidates.
        progress: Receives photos, then vectors.

    Returns:
        The entry with that of the first stage.

    Raises:
        ConfigError: If FAISS cannot build what the settings request.
        OSError: If the disk is full or cannot be written.
    """
    count, dim = entry.count, fitted.queries.shape[1]
    embeddings = map_npy(folder / EMBEDDINGS, np.float32, (count, entry.vector_dim))
    store = TokenStore.open(folder, count, entry.token_count, entry.token_dim, entry.token_dtype)
    progress.start(count, "photos fitted")
    with NpyWriter(folder / LEARNED_VECTORS, np.float32, (dim,)) as writer:
        for part in fitted.vectors(embeddings, store):
            writer.append(part)
            progress.advance(len(part))
    fitted.fit.save(folder / LEARNED_FIT)
    np.save(folder / LEARNED_QUERIES, fitted.queries)
    vectors = map_npy(folder / LEARNED_VECTORS, np.float32, (count, dim))
    factories = factories_to_try(
        settings.ann,
        count,
        dim,
        settings.memory_budget_bytes,
        settings.ann_recall,
        fitted=True,
    )
    ann = build_best(folder / LEARNED_ANN, factories, vectors, fitted.queries, settings, progress)
    learned = LearnedEntry(
        dim=dim,
        match=fitted.weights.match,
        align=fitted.weights.align,
        fusion=fitted.weights.fusion,
        queries=len(fitted.queries),
        ann=ann,
    )
    return replace(entry, learned=learned)
