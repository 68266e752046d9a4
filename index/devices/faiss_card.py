"""The first stage on a graphics card, by FAISS."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.ann.ann_index import AnnIndex
from index.ann.faiss_library import faiss
from index.devices.owner_thread import OwnerThread
from index.selection import Selection
from index.stages import with_margin

# The most neighbours, and the most lists, that FAISS's kernels for cards can take.
MOST_ON_CARD = 2048
_VECTORS_AT_A_TIME = 2**18


class FaissCard:
    """A card as FAISS uses it: its working memory, and the one thread that may touch it.

    FAISS's indexes on cards, and the memory that they share, are not to be used by two threads.
    """

    def __init__(self, library: Any = faiss) -> None:
        """Take the first card.

        Args:
            library: FAISS; the wheel without support for cards lacks half of it.

        Raises:
            RuntimeError: the wheel or the card cannot.
        """
        if not hasattr(library, "StandardGpuResources"):
            raise RuntimeError("this FAISS was built without support for cards (faiss-cpu)")
        if library.get_num_gpus() == 0:
            raise RuntimeError("FAISS finds no card")
        self._library = library
        self.owner = OwnerThread("faiss-card")
        self._resources = self.owner.run(library.StandardGpuResources)

    def copy(self, ann: AnnIndex, embeddings: NDArray[np.float32]) -> Any:
        """Copy a first stage to the card.

        Inverted lists and plain vectors go as they are. All else, graphs above all, has no form
        on cards; there the card compares with every vector, in less time than a processor needs
        for the graph.

        Args:
            ann: on the processor; stays as it is.
            embeddings: (items, dim), of the ANN; may be a memory map.

        Raises:
            OwnerFailedError: the card has no room for it, or has failed.
        """
        index = ann.faiss_index
        library = self._library
        if isinstance(index, (library.IndexIVFFlat, library.IndexIVFScalarQuantizer)):
            return self.owner.run(lambda: self._inverted_lists(index, ann.search_width or 1))
        return self.owner.run(lambda: self._plain_vectors(embeddings))

    def close(self) -> None:
        """End the thread; nothing can be searched any more."""
        self.owner.close()

    def _inverted_lists(self, index: Any, lists: int) -> Any:
        copy = self._library.index_cpu_to_gpu(self._resources, 0, index)
        # The copy is nobody else's, so it can be told once and not at each search.
        copy.nprobe = min(lists, MOST_ON_CARD)
        return copy

    def _plain_vectors(self, embeddings: NDArray[np.float32]) -> Any:
        options = self._library.GpuIndexFlatConfig()
        options.useFloat16 = True  # half the memory, and the memory is what a search waits for
        dim = embeddings.shape[1]
        index = self._library.GpuIndexFlatIP(self._resources, dim, options)
        for start in range(0, len(embeddings), _VECTORS_AT_A_TIME):
            index.add(np.ascontiguousarray(embeddings[start : start + _VECTORS_AT_A_TIME]))
        return index


class GpuAnn:
    """Searches an ANN's copy on a card; what cards cannot do, the ANN does.

    They take neither filters nor more than 2,048 neighbours.
    """

    def __init__(self, card: FaissCard, ann: AnnIndex, embeddings: NDArray[np.float32]) -> None:
        """Copy an ANN to the card, see `FaissCard.copy`."""
        self._ann = ann
        self._owner = card.owner
        self._on_card = [card.copy(ann, embeddings)]
        # The thread that searches is also the one that frees the memory.
        weakref.finalize(self, card.owner.post, self._on_card.clear)

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> NDArray[np.int64]:
        """Find near rows, see `index.stages.FirstStage`.

        Raises:
            OwnerFailedError: the card has failed.
        """
        wanted = max(math.ceil(count * self._ann.oversample), with_margin(count))
        wanted = min(wanted, self._ann.count)
        if allowed is not None or wanted > MOST_ON_CARD:
            return self._ann.search(query, count, allowed)
        on_card = self._on_card
        _, rows = self._owner.run(lambda: on_card[0].search(query[None], wanted))
        found: NDArray[np.int64] = rows[0]
        return found[found >= 0]
