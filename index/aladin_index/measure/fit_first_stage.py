"""Fits the first stage of an index to the alignment of its photos; see `aladin_index.learned`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_index.ann.corrected import query_vectors
from aladin_index.format.disk import disk_errors, only_builder
from aladin_index.format.layout import NEW_GENERATION
from aladin_index.format.manifest import CollectionEntry, LearnedEntry
from aladin_index.generations.published import NewFiles, publish_entries
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.learned.files import LEARNED_FILES, TUNED_WITH, FirstStageFit, write_learned
from aladin_index.learned.weights import Weights
from aladin_index.measure.fidelity import TuneQueries, stored_queries
from aladin_index.settings import BuildSettings
from aladin_network.errors import InputError
from aladin_network.inference import Network
from aladin_network.scoring.learned_stage import (
    FIT_PHOTOS,
    FIT_TEXTS,
    LEAST_TEXTS,
    fit_learned_stage,
)
from aladin_network.scoring.token_rows import TokenRows
from aladin_network.types import Modality, NullProgress, Progress, Target


class FitReport(NamedTuple):
    """Result of a fit.

    Attributes:
        generation: The new live generation.
        entry: Entry of the first stage.
        texts: Number of texts that it was fitted to.
    """

    generation: int
    entry: LearnedEntry
    texts: int


def fit_first_stage(
    root: Path,
    dim: int,
    make_queries: Callable[[Network], Mapping[Modality, TuneQueries]] | None = None,
    progress: Progress | None = None,
) -> FitReport:
    """Fit the first stage, and publish a generation with it.

    The new generation shares all other files with the old one; pending changes go along, and are
    fitted when they are searched. The number of candidates that was tuned is forgotten.

    Args:
        root: Index folder.
        dim: Size of the learned part of a vector.
        make_queries: Function that encodes texts of the kind that will be asked for, or None for
            those of the index.
        progress: Receives texts, photos and vectors.

    Raises:
        InputError: If the index has no photos with tokens, or there are too few texts.
        ConfigError: If the model's fusion gives the alignment no weight, or `dim` is too large.
        IndexNotReadyError: If no generation was published yet.
        IndexCorruptError: If a file does not match the manifest.
        IndexWriteError: If the disk is full or cannot be written, or the index is being built.
    """
    progress = progress or NullProgress()
    with disk_errors(root), only_builder(root), open_index(root) as index:
        photos = index.images
        if photos is None or photos.entry.token_count == 0:
            raise InputError(f"{root}: expected photos with tokens to fit the first stage to")
        texts = _texts(index, make_queries)
        fusion = index.manifest.fusion(index.checkpoint.fusion)
        weights = Weights.of(fusion.text_to_image, corrected=photos.entry.corrected)
        rows = np.random.default_rng(0).permutation(photos.entry.count)[:FIT_PHOTOS]
        sample = TokenRows(*photos.tokens.read(np.sort(rows)))
        words = _token_rows(texts)
        fit = fit_learned_stage(sample, words, dim, progress)
        learned = fit.query_vectors(words)
        asked = query_vectors(texts.embeddings, photos.entry.vector_dim)
        queries = weights.query(asked, learned, weights.fusion, words.lengths)[:TUNED_WITH]
        fitted = FirstStageFit(fit=fit, weights=weights, queries=queries)
        written = _Written(photos.entry, fitted, index, progress)
        names = [f"images/{name}" for name in LEARNED_FILES]
        try:
            generation = publish_entries(
                root,
                index.manifest,
                {},
                "fit",
                new_files=NewFiles(names, written.write),
            )
        finally:
            shutil.rmtree(root / NEW_GENERATION, ignore_errors=True)
        assert written.entry is not None  # it was published
        return FitReport(generation, written.entry, len(texts.tokens))


class _Written:
    """Writes the files of the first stage into a new generation.

    Attributes:
        entry: Entry of the first stage, once written.
    """

    def __init__(
        self,
        photos: CollectionEntry,
        fitted: FirstStageFit,
        index: SearchIndex,
        progress: Progress,
    ) -> None:
        self._photos, self._fitted = photos, fitted
        self._index, self._progress = index, progress
        self.entry: LearnedEntry | None = None

    def write(self, folder: Path) -> dict[Target, CollectionEntry]:
        """Write the files, see `NewFiles.write`."""
        ann = self._photos.ann
        settings = BuildSettings(
            ann=ann.asked,
            memory_budget_bytes=ann.memory_budget_bytes,
            ann_recall=ann.recall_wanted,
            default_candidates=self._index.manifest.default_candidates,
        )
        photos = replace(self._photos, tuning=None)
        images = write_learned(folder / "images", self._fitted, photos, settings, self._progress)
        self.entry = images.learned
        return {"images": images}


def _texts(
    index: SearchIndex,
    make_queries: Callable[[Network], Mapping[Modality, TuneQueries]] | None,
) -> TuneQueries:
    if make_queries is not None:
        found = make_queries(index.checkpoint.model).get("text")
    else:
        found = None if index.texts is None else stored_queries(index.texts, FIT_TEXTS)
    count = 0 if found is None else len(found.tokens)
    if found is None or count < LEAST_TEXTS:
        where = "the index" if make_queries is None else "--words"
        raise InputError(
            f"{where}: expected at least {LEAST_TEXTS} texts of the kind that will be asked for, "
            f"got {count}" + ("; give --words" if make_queries is None else "")
        )
    return found


def _token_rows(texts: TuneQueries) -> TokenRows:
    lengths = np.array([len(words) for words in texts.tokens], dtype=np.int64)
    return TokenRows(np.concatenate(texts.tokens), lengths)
