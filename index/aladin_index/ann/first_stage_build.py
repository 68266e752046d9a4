"""The first stages of a new generation: choice of the FAISS index, building, tuning and writing.

The choice is the fastest index that fits the memory and reaches the required recall. Measured by
``python -m benchmarks.search.ann_factories`` with one thread: the nearest 100 of 100,000 photos for
a caption, 256 values, one query at a time; each tuned for an ann_recall of 0.99, with the rows
compared exactly for each one requested.

                         recall     ms
    IVF256,PQ256x4fs      .9957   .217
    IVF256,PQ128x4fs      .9929   .282
    IVF256,PQ64x4fs       .9834   .359
    IVF256,SQ8            .9907   .485
    HNSW32,Flat           .9915   .878
    Flat                 1.0000    6.1

Fast scan of one 4-bit code per value (``PQ256x4fs`` at 256 values) is the fastest, in a seventh of
the memory of the vectors. Graphs are slower, and are used only if requested explicitly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.ann_index import EXACT_UP_TO, AnnIndex, build_ann, check_factory
from aladin_index.ann.coarse_quantiser import builds_on_card
from aladin_index.ann.file import write_ann
from aladin_index.ann.hub_correction import query_vectors, without_biases
from aladin_index.ann.search_width import choose_search_width, sample_queries
from aladin_index.format.layout import ANN, EMBEDDINGS
from aladin_index.format.manifest import AnnEntry
from aladin_index.format.npy import map_npy
from aladin_index.settings import EXACT_ALIGN, BuildSettings
from aladin_network.errors import ConfigError
from aladin_network.types import Progress, Target

# With fewer vectors, there is nothing to train on and nothing to gain.
_TRAINED_FROM = 1000
_ID_BYTES = 8

_QUERIES = 200

# Largest number of vectors that a GPU compares with one by one. Not measured yet, but arithmetic: a
# scan of so many vectors of 256 values in half precision reads 2 GB, which takes 0.7 ms at 3 TB/s;
# `python -m benchmarks.card` measures it.
CARD_FLAT_UP_TO = 4_000_000


class AnnOption(NamedTuple):
    """One kind of index for a collection.

    Attributes:
        factory: FAISS's description.
        memory_bytes: Memory that it takes once all of it has been searched. Vectors that are read
            from ``embeddings.npy`` for exact comparison are not counted.
        most_recall: Highest ann_recall that the option can be expected to reach.
    """

    factory: str
    memory_bytes: int
    most_recall: float


def ann_options(count: int, dim: int, *, on_card: bool = False) -> list[AnnOption]:
    """List the kinds of index for a number of vectors, fastest first.

    A GPU has no form of fast scan.
    """
    flat = AnnOption("Flat", 4 * dim * count, 1.0)
    if count < _TRAINED_FROM:
        return [flat]
    lists = 2 ** round(math.log2(math.sqrt(count)))
    centroids = 4 * dim * lists
    options: list[AnnOption] = []
    # Codes of 4 bits each: one for each value, for two values, or for four.
    for values, most_recall in ((1, 0.999), (2, 0.99), (4, 0.97)):
        if dim % (2 * values) == 0:
            vector_bytes = dim // values // 2 + _ID_BYTES
            factory = f"IVF{lists},PQ{dim // values}x4fs"
            options.append(AnnOption(factory, centroids + vector_bytes * count, most_recall))
    eight_bits = AnnOption(f"IVF{lists},SQ8", centroids + (dim + _ID_BYTES) * count, 0.9999)
    options = [eight_bits] if on_card and count > CARD_FLAT_UP_TO else [*options, eight_bits]
    # Up to this number, comparing with every vector is as fast as the options below.
    return [flat, *options] if count <= EXACT_UP_TO else [*options, flat]


def fitting_factories(
    count: int,
    dim: int,
    memory_budget_bytes: int | None,
    ann_recall: float,
    *,
    on_card: bool = False,
) -> list[str]:
    """Return the kind of index to build first, then those to try if it finds too little.

    The first is the fastest that fits the memory and may be expected to find enough, each further
    one finds more. Raises `ConfigError` if none fits.
    """
    options = ann_options(count, dim, on_card=on_card)
    able = [each for each in options if each.most_recall >= ann_recall]
    fitting = [
        each
        for each in able
        if memory_budget_bytes is None or each.memory_bytes <= memory_budget_bytes
    ]
    if not fitting:
        least = min(each.memory_bytes for each in able)
        raise ConfigError(
            f"memory_budget_bytes: {count:,} vectors of {dim} values at ann_recall {ann_recall} "
            f"take at least {least:,} bytes, got {memory_budget_bytes:,}"
        )
    chosen = [fitting[0]]
    for each in fitting[1:]:
        if each.most_recall > chosen[-1].most_recall:
            chosen.append(each)
    return [each.factory for each in chosen]


def factories_to_try(
    ann: str,
    count: int,
    dim: int,
    memory_budget_bytes: int | None,
    ann_recall: float,
    *,
    on_card: bool = False,
) -> list[str]:
    """Return the factory strings that a setting allows for a collection, in order of trial."""
    if ann == "auto":
        return fitting_factories(count, dim, memory_budget_bytes, ann_recall, on_card=on_card)
    return ["Flat" if ann in ("exact", EXACT_ALIGN) else ann]


Shapes = Mapping[Target, tuple[int, int]]


def check_first_stages(shapes: Shapes, settings: BuildSettings) -> None:
    """Check, before any work, that the first stages can be built; raises `ConfigError`."""
    for target, (count, dim) in shapes.items():
        check_factory(_factories(shapes, target, settings)[0], dim, count)


def build_first_stages(
    folder: Path,
    shapes: Shapes,
    embedding_dim: int,
    settings: BuildSettings,
    progress: Progress,
) -> dict[Target, AnnEntry]:
    """Build the FAISS index of each collection; its vectors must exist.

    What "auto" chose and then finds less than was asked for gives way to the next kind that fits
    the memory; where there is none, the entry says how much is found.
    """
    vectors: dict[Target, NDArray[np.float32]] = {
        target: map_npy(folder / target / EMBEDDINGS, np.float32, shape)
        for target, shape in shapes.items()
    }
    entries: dict[Target, AnnEntry] = {}
    for target, (_, width) in shapes.items():
        # As in a real search, the queries are items of the other collection, if there is one.
        others: list[Target] = [other for other in shapes if other != target]
        asking = others[0] if others else target
        queries = without_biases(sample_queries(vectors[asking], _QUERIES), embedding_dim)
        entries[target] = _build_best(
            folder / target / ANN,
            _factories(shapes, target, settings),
            vectors[target],
            query_vectors(queries, width),
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
    """Write the first kind of index that finds enough, or else the one that finds most."""
    recall_at = min(settings.default_candidates, len(embeddings))
    best: AnnEntry | None = None
    for factory in factories:
        index = build_ann(factory, embeddings, progress, settings.device)
        chosen, curve = choose_search_width(
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
        # Each collection's share is proportional to the size of its vectors.
        values = sum(count * dim for count, dim in shapes.values())
        budget = budget * count * dim // values
    return factories_to_try(
        settings.ann,
        count,
        dim,
        budget,
        settings.ann_recall,
        on_card=builds_on_card(settings.device),
    )
