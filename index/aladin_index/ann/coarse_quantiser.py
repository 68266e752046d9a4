"""The coarse quantiser of an index that is being built: by which metric, and where it compares.

Most of the work of building inverted lists is k-means and finding the nearest centroid of every
vector. FAISS does both by the index's coarse quantiser, so another one that takes its place
meanwhile decides how the lists are made, and nothing else of the index knows of it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss

_LOG = logging.getLogger(__name__)

# Vectors by which it is decided whether all have the same length.
_LENGTHS = 1000


def missing_card() -> str | None:
    """Say why FAISS cannot build on a GPU here, or None if it can."""
    if not hasattr(faiss, "StandardGpuResources"):
        return "this FAISS was built without support for GPUs (faiss-cpu)"
    return None if faiss.get_num_gpus() else "FAISS finds no GPU"


def builds_on_card(device: str) -> bool:
    """Tell whether a build on a device of torch has FAISS compare there, too."""
    return device.startswith("cuda") and missing_card() is None


def by_distance(sample: NDArray[np.float32]) -> bool:
    """Tell whether some vectors are longer than others, so that lists need Euclidean distances.

    By the inner product, FAISS clusters directions alone, and adds a vector to the list of the
    direction nearest to it: lists then mix vectors of all lengths, and four to eight times as many
    have to be searched.
    """
    lengths = np.linalg.norm(sample[:_LENGTHS], axis=1)
    return bool(np.ptp(lengths) > 0.01 * lengths.mean())


@contextmanager
def coarse_quantiser(index: Any, *, distances: bool, on_card: bool) -> Generator[None]:
    """Train and fill the lists of an index by a quantiser of this metric, in this place.

    Searches have the index's own quantiser, by the inner product on the processor, with the
    centroids that were found; so has the file.
    """
    inner = faiss.try_extract_index_ivf(index)
    if inner is None or not (distances or on_card):
        yield
        return
    ivf: Any = faiss.downcast_index(inner)
    products: Any = faiss.downcast_index(ivf.quantizer)
    if not isinstance(products, faiss.IndexFlat):  # a graph of centroids, or a product of two
        yield
        return
    centroids = (faiss.IndexFlatL2 if distances else faiss.IndexFlatIP)(ivf.d)
    if distances:
        ivf.cp.spherical = False
    comparing = _on_card(centroids) if on_card else centroids  # held here: FAISS only points to it
    ivf.quantizer = comparing
    try:
        yield
        products.add(centroids.reconstruct_n(0, centroids.ntotal))
    finally:
        ivf.quantizer = products


def _on_card(centroids: Any) -> Any:
    """Return a quantiser that compares on the GPU, and adds to `centroids` what it is given.

    Residuals are computed from `centroids`: by FAISS's threads, of which a GPU permits one, and
    vector by vector, for which a GPU is slow.
    """
    is_l2 = isinstance(centroids, faiss.IndexFlatL2)
    kind = faiss.GpuIndexFlatL2 if is_l2 else faiss.GpuIndexFlatIP
    comparing = kind(faiss.StandardGpuResources(), centroids.d, faiss.GpuIndexFlatConfig())
    return faiss.IndexRefine(comparing, centroids)
