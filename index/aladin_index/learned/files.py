"""The files of the fitted first stage of a collection: names, and writing."""

from __future__ import annotations

from collections.abc import Iterator
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


def fitted_vectors(
    fit: LearnedStage,
    weights: Weights,
    embeddings: NDArray[np.float32],
    store: TokenStore,
    *,
    corrected: bool,
) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors of all photos of a store, some at a time."""
    for start in range(0, store.count, _PHOTOS_AT_A_TIME):
        rows = np.arange(start, min(start + _PHOTOS_AT_A_TIME, store.count), dtype=np.int64)
        learned = fit.photo_vectors(TokenRows(*store.read(rows)))
        yield weights.items(embeddings[rows], learned, corrected=corrected)


def write_learned(
    folder: Path,
    fit: LearnedStage,
    weights: Weights,
    queries: NDArray[np.float32],
    embeddings: NDArray[np.float32],
    store: TokenStore,
    settings: BuildSettings,
    progress: Progress,
    *,
    corrected: bool,
) -> LearnedEntry:
    """Fit all photos of a collection, and write the files of the first stage.

    Args:
        folder: Folder of the collection.
        fit: Fitted parameters.
        weights: Weights of both parts.
        queries: (queries, both) float32, vectors of texts to tune the FAISS index with.
        embeddings: (photos, d_match) float32, or vectors with biases.
        store: Tokens of the photos.
        settings: Settings of FAISS and of the candidates.
        progress: Receives photos, then vectors.
        corrected: Whether the collection has the biases of a hubness correction.

    Returns:
        The entry of the manifest.

    Raises:
        ConfigError: If FAISS cannot build what the settings request.
        OSError: If the disk is full or cannot be written.
    """
    dim = queries.shape[1]
    progress.start(store.count, "photos fitted")
    with NpyWriter(folder / LEARNED_VECTORS, np.float32, (dim,)) as writer:
        for part in fitted_vectors(fit, weights, embeddings, store, corrected=corrected):
            writer.append(part)
            progress.advance(len(part))
    fit.save(folder / LEARNED_FIT)
    np.save(folder / LEARNED_QUERIES, queries)
    vectors = map_npy(folder / LEARNED_VECTORS, np.float32, (store.count, dim))
    factories = factories_to_try(
        settings.ann,
        store.count,
        dim,
        settings.memory_budget_bytes,
        settings.ann_recall,
        fitted=True,
    )
    ann = build_best(folder / LEARNED_ANN, factories, vectors, queries, settings, progress)
    return LearnedEntry(
        dim=dim,
        match=weights.match,
        align=weights.align,
        fusion=weights.fusion,
        queries=len(queries),
        ann=ann,
    )


def rewrite_learned(
    folder: Path,
    fit: LearnedStage,
    weights: Weights,
    queries: NDArray[np.float32],
    entry: CollectionEntry,
    settings: BuildSettings,
    progress: Progress,
) -> LearnedEntry:
    """Write the first stage of an earlier generation for the items of a new one.

    Args:
        folder: Folder of the new collection, with its embeddings and tokens.
        fit: Fitted parameters, as the following of the earlier generation.
        weights: Weights of both parts.
        queries: Vectors of texts, see `write_learned`.
        entry: Entry of the new collection.
        settings: Settings of FAISS and of the candidates.
        progress: Receives photos, then vectors.

    Raises:
        ConfigError: If FAISS cannot build what the settings request.
        OSError: If the disk is full or cannot be written.
    """
    embeddings = map_npy(folder / EMBEDDINGS, np.float32, (entry.count, entry.vector_dim))
    store = TokenStore.open(
        folder, entry.count, entry.token_count, entry.token_dim, entry.token_dtype
    )
    return write_learned(
        folder,
        fit,
        weights,
        queries,
        embeddings,
        store,
        settings,
        progress,
        corrected=entry.corrected,
    )
