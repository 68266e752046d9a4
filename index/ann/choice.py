"""Which FAISS index a side gets: the fastest that fits the memory and finds enough.

Measured by ``python -m benchmarks.ann_factories`` with one thread: the nearest 100 of 100,000
photos for a caption, 256 values, one query at a time; each calibrated for an ann_recall of 0.99,
with the rows compared exactly for each one wanted.

                         recall     ms
    IVF256,PQ256x4fs      .9957   .217
    IVF256,PQ128x4fs      .9929   .282
    IVF256,PQ64x4fs       .9834   .359
    IVF256,SQ8            .9907   .485
    HNSW32,Flat           .9915   .878
    Flat                 1.0000    6.1

So fast scan of one 4-bit code for each value (``PQ256x4fs`` at 256 values) leads, in a seventh of
the memory of the vectors. A graph is slower than that, and is chosen by hand only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from aladin.errors import ConfigError
from index.ann.ann_index import EXACT_UP_TO

# With fewer vectors there is nothing to train on, and nothing to gain.
_TRAINED_FROM = 1000
_ID_BYTES = 8


class AnnOption(NamedTuple):
    """One kind of index for a side.

    Attributes:
        factory: FAISS's description.
        memory_bytes: what it takes in memory once all of it was searched. Vectors that are read
            from ``embeddings.npy`` to compare exactly are not counted.
        most_recall: ann_recall that it may be expected to reach.
    """

    factory: str
    memory_bytes: int
    most_recall: float


def ann_options(count: int, dim: int) -> list[AnnOption]:
    """List the kinds of index for a number of vectors, fastest first.

    Args:
        count: number of vectors.
        dim: of a vector.
    """
    flat = AnnOption("Flat", 4 * dim * count, 1.0)
    if count < _TRAINED_FROM:
        return [flat]
    lists = 2 ** round(math.log2(math.sqrt(count)))
    centroids = 4 * dim * lists
    options: list[AnnOption] = []
    # Of 4 bits each: one code a value, for two values, for four.
    for values, most_recall in ((1, 0.999), (2, 0.99), (4, 0.97)):
        if dim % (2 * values) == 0:
            vector_bytes = dim // values // 2 + _ID_BYTES
            factory = f"IVF{lists},PQ{dim // values}x4fs"
            options.append(AnnOption(factory, centroids + vector_bytes * count, most_recall))
    eight_bits = AnnOption(f"IVF{lists},SQ8", centroids + (dim + _ID_BYTES) * count, 0.9999)
    options.append(eight_bits)
    # Up to here comparing with every vector takes no longer than what comes after it.
    return [flat, *options] if count <= EXACT_UP_TO else [*options, flat]


def fitting_factories(
    count: int, dim: int, memory_budget_bytes: int | None, ann_recall: float
) -> list[str]:
    """Return what to build, and what to build next if that finds less than expected.

    Args:
        count: number of vectors.
        dim: of a vector.
        memory_budget_bytes: of this side; None: any.
        ann_recall: share of the exact nearest items to find.

    Returns:
        At least one factory string. The first is the fastest that fits the memory and may be
        expected to find enough, each further one finds more than the one before.

    Raises:
        ConfigError: nothing that finds enough fits the memory.
    """
    able = [each for each in ann_options(count, dim) if each.most_recall >= ann_recall]
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
    ann: str, count: int, dim: int, memory_budget_bytes: int | None, ann_recall: float
) -> list[str]:
    """Return the factory strings that a setting allows for a side, in the order to try them.

    Args:
        ann: "auto", "exact", or a factory string.
        count: number of vectors.
        dim: of a vector.
        memory_budget_bytes: of this side, for "auto"; None: any.
        ann_recall: share of the exact nearest items to find, for "auto".

    Raises:
        ConfigError: nothing that finds enough fits the memory.
    """
    if ann == "auto":
        return fitting_factories(count, dim, memory_budget_bytes, ann_recall)
    return ["Flat" if ann == "exact" else ann]
