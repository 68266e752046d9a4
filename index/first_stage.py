"""The first stages of a new generation: chosen, built, measured and written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin.progress import Progress
from index.ann import AnnIndex, build_ann, check_factory, choose_factory, write_ann
from index.ann_recall import calibrate
from index.manifest import AnnEntry
from index.npy import map_npy
from index.settings import BuildSettings, Target
from index.side import ANN, EMBEDDINGS


def check_first_stages(shapes: Mapping[Target, tuple[int, int]], settings: BuildSettings) -> None:
    """Refuse, before any work, first stages that cannot be built.

    Args:
        shapes: number of items and size of an embedding of each side.
        settings: of the build.

    Raises:
        ConfigError: FAISS does not know what the settings ask for, or needs more items.
    """
    for count, dim in shapes.values():
        check_factory(choose_factory(settings.ann, count), dim, count)


def first_stages(
    folder: Path,
    shapes: Mapping[Target, tuple[int, int]],
    settings: BuildSettings,
    progress: Progress,
) -> dict[Target, AnnEntry]:
    """Build the ANN of each side, whose embeddings are written.

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
    for target, (count, _) in shapes.items():
        # As in a real search, the queries are items of the other side, if there is one.
        asking = next((other for other in shapes if other != target), target)
        factory = choose_factory(settings.ann, count)
        index = build_ann(factory, embeddings[target], progress)
        recall_at = min(settings.default_candidates, count)
        chosen = calibrate(AnnIndex(index, None), embeddings[target], embeddings[asking], recall_at)
        write_ann(folder / target / ANN, index)
        entries[target] = AnnEntry(
            factory=factory,
            search_width=chosen.search_width,
            recall=chosen.recall,
            recall_at=recall_at,
            recall_queries=chosen.queries,
        )
    return entries
