"""The first stages of a new generation: chosen, built, measured and written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin.progress import Progress
from index.ann.ann_index import AnnIndex
from index.ann.calibration import calibrate
from index.ann.choice import factories_to_try
from index.ann.construction import build_ann, check_factory
from index.ann.file import write_ann
from index.ann.recall import sample_queries
from index.manifest import AnnEntry
from index.npy import map_npy
from index.settings import BuildSettings, Target
from index.side import ANN, EMBEDDINGS

_QUERIES = 200

Shapes = Mapping[Target, tuple[int, int]]


def check_first_stages(shapes: Shapes, settings: BuildSettings) -> None:
    """Refuse, before any work, first stages that cannot be built.

    Args:
        shapes: number of items and size of an embedding of each side.
        settings: of the build.

    Raises:
        ConfigError: FAISS does not know what the settings ask for, or needs more items, or the
            memory is not enough for any that finds what is asked for.
    """
    for target, (count, dim) in shapes.items():
        check_factory(_factories(shapes, target, settings)[0], dim, count)


def first_stages(
    folder: Path, shapes: Shapes, settings: BuildSettings, progress: Progress
) -> dict[Target, AnnEntry]:
    """Build the ANN of each side, whose embeddings are written.

    What "auto" chose and then finds less than was asked for gives way to the next kind that fits
    the memory; where there is none, the entry says how much is found.

    Args:
        folder: of the generation.
        shapes: number of items and size of an embedding of each side.
        settings: of the build.
        progress: advanced with the vectors that are in the ANN.

    Raises:
        ConfigError: FAISS cannot build what the settings ask for.
        OSError: the disk is full, or cannot be written.
    """
    embeddings: dict[Target, NDArray[np.float32]] = {
        target: map_npy(folder / target / EMBEDDINGS, np.float32, shape)
        for target, shape in shapes.items()
    }
    entries: dict[Target, AnnEntry] = {}
    for target in shapes:
        # As in a real search, the queries are items of the other side, if there is one.
        others: list[Target] = [other for other in shapes if other != target]
        asking = others[0] if others else target
        queries = sample_queries(embeddings[asking], _QUERIES)
        entries[target] = _build_best(
            folder / target / ANN,
            _factories(shapes, target, settings),
            embeddings[target],
            queries,
            settings,
            progress,
        )
    return entries


def _build_best(
    path: Path,
    factories: list[str],
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    settings: BuildSettings,
    progress: Progress,
) -> AnnEntry:
    """Write the first kind of index that finds enough, or the one that finds most."""
    recall_at = min(settings.default_candidates, len(embeddings))
    best: AnnEntry | None = None
    for factory in factories:
        index = build_ann(factory, embeddings, progress)
        chosen, curve = calibrate(
            AnnIndex(index, None), embeddings, queries, recall_at, settings.ann_recall
        )
        if best is None or chosen.recall > best.recall:
            write_ann(path, index)
            best = AnnEntry(
                asked=settings.ann,
                memory_budget_bytes=settings.memory_budget_bytes,
                factory=factory,
                search_width=chosen.search_width,
                oversample=chosen.oversample,
                recall=chosen.recall,
                recall_at=recall_at,
                recall_queries=len(queries),
                recall_wanted=settings.ann_recall,
                curve=curve,
            )
        if best.recall >= settings.ann_recall:
            break
    assert best is not None  # there is at least one factory
    return best


def _factories(shapes: Shapes, target: Target, settings: BuildSettings) -> list[str]:
    count, dim = shapes[target]
    budget = settings.memory_budget_bytes
    if budget is not None:
        # Each side gets its share by the size of its vectors.
        values = sum(count * dim for count, dim in shapes.values())
        budget = budget * count * dim // values
    return factories_to_try(settings.ann, count, dim, budget, settings.ann_recall)
