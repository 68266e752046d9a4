"""The fitted first stage of a collection: what it is made of, its files, and their writing.

It is fitted to an index (`aladin_index.measure.fit_first_stage`), or comes with the network whose
first-stage head was trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.corrected import query_vectors, without_biases
from aladin_index.ann.first_stage_build import build_best, factories_to_try
from aladin_index.format.layout import EMBEDDINGS
from aladin_index.format.manifest import CollectionEntry, LearnedEntry
from aladin_index.format.npy import NpyWriter, map_npy
from aladin_index.learned.weights import Weights
from aladin_index.settings import BuildSettings
from aladin_index.tokens.store import TokenStore
from aladin_network.checkpoint_files import read_config, read_first_stage
from aladin_network.errors import CheckpointError
from aladin_network.heads.trained import read_alignment_trained
from aladin_network.scoring.correction import HubCorrection
from aladin_network.scoring.learned_stage import LearnedStage
from aladin_network.scoring.token_rows import TokenRows
from aladin_network.types import Progress

LEARNED_ANN, LEARNED_VECTORS = "learned.faiss", "learned.npy"
LEARNED_FIT, LEARNED_QUERIES = "learned.safetensors", "learned_queries.npy"
LEARNED_FILES = (LEARNED_ANN, LEARNED_VECTORS, LEARNED_FIT, LEARNED_QUERIES)

# Texts that the FAISS index is tuned with, and the words of one that is made up of the bank.
TUNED_WITH = 200
_WORDS_A_TEXT = 10
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


@dataclass(frozen=True, kw_only=True)
class ModelFirstStage:
    """The first stage that a network has learned.

    Attributes:
        fit: Parameters of the network's head.
        weights: Weights of both parts of a vector.
    """

    fit: LearnedStage
    weights: Weights

    @classmethod
    def of(cls, checkpoint: Path, correction: HubCorrection | None) -> ModelFirstStage | None:
        """Read the head of a checkpoint.

        Args:
            checkpoint: Folder of the checkpoint.
            correction: Hubness correction of the index, or None.

        Returns:
            None if there is no trained head, or nothing to find with it: searches do not rank by an
            alignment that was not trained, or has no weight.

        Raises:
            CheckpointError: If the checkpoint cannot be read.
        """
        fit = read_first_stage(checkpoint)
        if fit is None or not read_alignment_trained(checkpoint):
            return None
        of_model = read_config(checkpoint).fusion
        fusion = (of_model if correction is None else correction.constants.fusion).text_to_image
        if fusion.weight == 0:
            return None
        return cls(fit=fit, weights=Weights.of(fusion, corrected=correction is not None))

    def fitted(
        self, folder: Path, photos: CollectionEntry, texts: CollectionEntry | None
    ) -> FirstStageFit:
        """Return the first stage of a collection that has been written.

        Args:
            folder: Folder of the generation, with the embeddings and tokens of its collections.
            photos: Entry of the photos.
            texts: Entry of the texts, which the FAISS index is tuned with, or None if there are
                none: it is then tuned with embeddings of photos, and words of the head's bank.

        Raises:
            CheckpointError: If the head is of tokens of another size.
        """
        if photos.token_dim != self.fit.token_dim:
            raise CheckpointError(
                f"first-stage head of the model: expected tokens of {photos.token_dim} values, "
                f"got {self.fit.token_dim}"
            )
        random = np.random.default_rng(0)
        target, asking = ("images", photos) if texts is None else ("texts", texts)
        rows = np.sort(random.permutation(asking.count)[:TUNED_WITH])
        vectors = map_npy(
            folder / target / EMBEDDINGS, np.float32, (asking.count, asking.vector_dim)
        )
        embeddings = without_biases(vectors[rows], asking.embedding_dim)
        if texts is None:
            bank = self.fit.words[self.fit.words.any(axis=1)]
            chosen = random.integers(0, len(bank), len(rows) * _WORDS_A_TEXT)
            words = TokenRows(bank[chosen], np.full(len(rows), _WORDS_A_TEXT))
        else:
            words = TokenRows(*TokenStore.of(folder / target, asking).read(rows))
        asked = query_vectors(embeddings, photos.vector_dim)
        learned = self.fit.query_vectors(words)
        queries = self.weights.query(asked, learned, self.weights.fusion, words.lengths)
        return FirstStageFit(fit=self.fit, weights=self.weights, queries=queries)


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
    store = TokenStore.of(folder, entry)
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
