"""Finds, with real queries, the search settings that reach the requested quality."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.search_width import choose_search_width
from aladin_index.format.disk import disk_errors, only_builder
from aladin_index.format.manifest import (
    AnnEntry,
    CollectionEntry,
    FidelityPoint,
    Tuning,
    model_folder,
)
from aladin_index.generations.published import publish_entries
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.measure.fidelity import (
    ExhaustiveTops,
    TimedSearch,
    TuneQueries,
    exhaustive_tops,
    fewest_candidates,
    fidelity_of,
    stored_queries,
    two_stage_ms,
)
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.search.file_collection import StoredCollection
from aladin_network.graphs.loading import load_for_inference
from aladin_network.inference import Network
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Direction, Modality, NullProgress, Progress, Target

# Numbers of candidates on the curve, below the largest allowed one.
_CURVE = (10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750)
# The number of candidates depends on the first stage's search settings, and these on the number of
# candidates.
_ROUNDS = 3
_CROSSING: dict[Target, tuple[Target, Modality, Direction]] = {
    "images": ("texts", "text", "text_to_image"),
    "texts": ("images", "image", "image_to_text"),
}


class TuneReport(NamedTuple):
    """Result of a tuning.

    Attributes:
        generation: The new live generation.
        collections: New entries of the collections.
        warnings: Sentences about targets that could not be reached or measured.
    """

    generation: int
    collections: dict[Target, CollectionEntry]
    warnings: list[str]


def tune_index(
    root: Path,
    options: TuneOptions,
    make_queries: Callable[[Network], Mapping[Modality, TuneQueries]] | None = None,
    progress: Progress | None = None,
) -> TuneReport:
    """Measure each collection, and publish a generation with the tuned search settings.

    The new generation shares its files with the old one; pending changes go along. Items that
    were added or removed since the generation was built take no part in the measurement.

    Args:
        root: Index folder.
        options: Requested quality and limits.
        make_queries: Function that encodes the queries, or None. For a modality that it does not
            return, or without a function, a sample of the index is used as queries.
        progress: Receives the progress of search widths and items.

    Raises:
        IndexNotReadyError: If no generation was published yet.
        IndexCorruptError: If a file does not match the manifest.
        IndexWriteError: If the disk is full or cannot be written, or the index is being built.
    """
    progress = progress or NullProgress()
    with disk_errors(root), only_builder(root), open_index(root) as index:
        network = index.checkpoint.model
        if options.device != "cpu":  # graphs compute on the CPU alone
            network = load_for_inference(
                model_folder(root, index.manifest.model.id), options.device
            ).model
        queries = {} if make_queries is None else make_queries(network)
        entries: dict[Target, CollectionEntry] = {}
        warnings: list[str] = []
        for target in index.manifest.targets:
            collection = index.images if target == "images" else index.texts
            assert collection is not None  # the manifest names it
            tuner = _CollectionTuner(index, collection, options, queries, progress)
            entries[target] = tuner.tune()
            warnings += tuner.warnings
        generation = publish_entries(root, index.manifest, entries, "tune")
    return TuneReport(generation, entries, warnings)


class _CollectionTuner:
    """Tunes one collection.

    Attributes:
        warnings: Targets that could not be reached or measured.
    """

    def __init__(
        self,
        index: SearchIndex,
        collection: StoredCollection,
        options: TuneOptions,
        queries: Mapping[Modality, TuneQueries],
        progress: Progress,
    ) -> None:
        self._collection = collection
        self._options = options
        self._progress = progress
        self._default = min(index.manifest.default_candidates, collection.entry.count)
        self._most = min(options.max_candidates, collection.entry.count)
        other, modality, direction = _CROSSING[collection.target]
        self._fusion: DirectionFusion = index.manifest.fusion(index.checkpoint.fusion).of(direction)
        other_collection = index.images if other == "images" else index.texts
        self._crossing = queries.get(modality)
        if self._crossing is None and other_collection is not None:
            self._crossing = stored_queries(other_collection, options.num_queries)
        if self._crossing is not None:
            self._crossing = self._crossing._replace(
                embeddings=collection.vectors(self._crossing.embeddings)
            )
        self.warnings: list[str] = []

    def tune(self) -> CollectionEntry:
        """Return the collection's new entry."""
        entry, queries = self._collection.entry, self._crossing
        if queries is None or entry.token_count == 0:
            reason = (
                "it has no tokens"
                if entry.token_count == 0
                else f"no {_CROSSING[self._collection.target][1]} queries: the index has only "
                f"{self._collection.target}, so give --queries"
            )
            self._warn(f"fidelity was not measured ({reason}); candidates stay as they are")
            if queries is None:
                queries = stored_queries(self._collection, self._options.num_queries)
                vectors = self._collection.vectors(queries.embeddings)
                queries = queries._replace(embeddings=vectors)
            at = self._default if entry.tuning is None else entry.tuning.candidates
            ann = self._calibrate(queries, min(at, entry.count))
            self._check_recall(ann)
            return replace(entry, ann=ann)
        at = min(self._options.at, entry.count)
        tops = exhaustive_tops(self._collection, queries, self._fusion, at, self._progress)
        ann, candidates = self._find(queries, tops)
        self._check_recall(ann)
        return replace(entry, ann=ann, tuning=self._measure(queries, tops, ann, candidates))

    def _find(self, queries: TuneQueries, tops: ExhaustiveTops) -> tuple[AnnEntry, int]:
        """Return the ANN search settings, and the fewest candidates that keep enough."""
        wanted = self._options.fidelity
        least = min(fewest_candidates(tops, wanted), self._most)
        candidates = least
        ann = self._calibrate(queries, candidates)
        for _ in range(_ROUNDS):
            fewest = self._fewest(queries, tops, ann, least)
            if fewest == candidates:
                break
            candidates = fewest
            ann = self._calibrate(queries, candidates)
            # With the settings found for more candidates, fewer may suffice; trying that would be
            # pointless.
            least = candidates
        return ann, candidates

    def _fewest(self, queries: TuneQueries, tops: ExhaustiveTops, ann: AnnEntry, least: int) -> int:
        """Search for the fewest candidates from `least` that keep enough, else the most."""

        def enough(candidates: int) -> bool:
            found = fidelity_of(self._collection, self._searching(ann), queries, tops, candidates)
            return found >= self._options.fidelity

        return fewest_enough(least, self._most, enough) or self._most

    def _measure(
        self, queries: TuneQueries, tops: ExhaustiveTops, ann: AnnEntry, candidates: int
    ) -> Tuning:
        options = self._options
        at = tops.rows.shape[1]
        numbers = {each for each in _CURVE if at <= each <= self._most} | {candidates, self._most}
        searches = [TimedSearch(self._searching(ann), number) for number in sorted(numbers)]
        self._progress.start(len(numbers), "numbers of candidates")
        times_ms = two_stage_ms(self._collection, queries, self._fusion, searches)
        curve: list[FidelityPoint] = []
        for (searching, number), took_ms in zip(searches, times_ms, strict=True):
            kept = fidelity_of(self._collection, searching, queries, tops, number)
            curve.append(FidelityPoint(candidates=number, fidelity=kept, search_ms=took_ms))
            self._progress.advance()
        chosen = next(point for point in curve if point.candidates == candidates)
        if chosen.fidelity < options.fidelity:
            best = max(point.fidelity for point in curve)
            chosen = next(point for point in curve if point.fidelity == best)
            self._warn(
                f"{self._most} candidates keep {chosen.fidelity:.4f} of the exhaustive top {at}, "
                f"{options.fidelity} was wanted; {chosen.candidates} are stored"
            )
        return Tuning(
            candidates=chosen.candidates,
            fidelity=chosen.fidelity,
            fidelity_wanted=options.fidelity,
            at=at,
            queries=len(queries.tokens),
            curve=curve,
        )

    def _calibrate(self, queries: TuneQueries, recall_at: int) -> AnnEntry:
        """Choose the ANN search settings for `recall_at` candidates."""
        wanted = self._options.ann_recall
        # Settings that reach this recall for few candidates may miss it for more: never measure
        # with fewer.
        chosen, curve = choose_search_width(
            self._collection.ann,
            self._collection.embeddings,
            np.ascontiguousarray(queries.embeddings),
            recall_at,
            wanted,
            timed=True,
            progress=self._progress,
        )
        return replace(
            self._collection.entry.ann,
            search_width=chosen.search_width,
            oversample=chosen.oversample,
            recall=chosen.recall,
            recall_at=recall_at,
            recall_queries=len(queries.embeddings),
            recall_wanted=wanted,
            curve=curve,
        )

    def _searching(self, ann: AnnEntry) -> AnnIndex:
        return AnnIndex(self._collection.ann.faiss_index, ann.search_width, ann.oversample)

    def _check_recall(self, ann: AnnEntry) -> None:
        if ann.recall < ann.recall_wanted:
            self._warn(
                f"{ann.factory} finds {ann.recall:.4f} of the nearest {ann.recall_at}, however "
                f"widely it searches; {ann.recall_wanted} was requested; `aladin index build` "
                "with another --ann reaches it"
            )

    def _warn(self, words: str) -> None:
        self.warnings.append(f"{self._collection.target}: {words}")


def fewest_enough(least: int, most: int, enough: Callable[[int], bool]) -> int | None:
    """Find the smallest number that is enough, or None; if one is, so are the larger ones."""
    if enough(least):
        return least
    low, high = least, min(2 * least, most)
    while not enough(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
