"""A first stage on a GPU: a copy of the ANN by FAISS.

FAISS permits one thread per GPU, so all its calls are made by one.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex
from aladin_index.items.selection import Selection

T = TypeVar("T")

# Maximum numbers of neighbours and of lists of FAISS's GPU kernels.
MOST_ON_CARD = 2048
_VECTORS_AT_A_TIME = 2**18


def with_margin(count: int) -> int:
    """Return how many rows to request of half-precision vectors to include the best `count`.

    They change the order only where cosines agree to 0.001; re-scoring with exact cosines then
    finds the right ones.
    """
    return count + count // 10 + 16


class OwnerFailedError(RuntimeError):
    """The owner thread has stopped, by `close` or after an error in a task."""


class OwnerThread:
    """Runs tasks one after the other in a thread of its own.

    The first error stops the thread, since a failed GPU may return wrong results. All pending and
    later tasks raise `OwnerFailedError`.
    """

    def __init__(self, name: str) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._stopped: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def post(self, task: Callable[[], T]) -> Future[T]:
        """Run `task` in the thread, without waiting."""
        future: Future[Any] = Future()
        with self._changed:
            if self._stopped is None:
                self._waiting.append((task, future))
                self._changed.notify()
            else:
                future.set_exception(_failed(self._stopped))
        return future

    def run(self, task: Callable[[], T]) -> T:
        """Run `task` in the thread, and wait for its result."""
        return self.post(task).result()

    def close(self) -> None:
        """Stop after the running task; waiting tasks get an `OwnerFailedError`."""
        self._stop(OwnerFailedError("closed"))
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopped is not None)
                if self._stopped is not None:
                    return
                task, future = self._waiting.popleft()
            try:
                result = task()
            except BaseException as error:  # whatever it is, nobody may be left waiting
                self._stop(error)
                future.set_exception(_failed(error))
                return
            future.set_result(result)
            # The last task must not be kept alive until the next one arrives.
            del task, future, result

    def _stop(self, reason: BaseException) -> None:
        with self._changed:
            self._stopped = self._stopped or reason
            left, self._waiting = self._waiting, deque()
            self._changed.notify()
        for _, future in left:
            future.set_exception(_failed(reason))


def _failed(reason: BaseException) -> OwnerFailedError:
    error = OwnerFailedError(str(reason) or type(reason).__name__)
    error.__cause__ = reason
    return error


class FaissCard:
    """A GPU as FAISS uses it: its working memory, and the only thread that may use it.

    FAISS's indexes on cards, and the memory that they share, are not to be used by two threads.
    """

    def __init__(self, library: Any = faiss) -> None:
        if not hasattr(library, "StandardGpuResources"):
            raise RuntimeError("this FAISS was built without support for cards (faiss-cpu)")
        if library.get_num_gpus() == 0:
            raise RuntimeError("FAISS finds no card")
        self._library = library
        self.owner = OwnerThread("faiss-card")
        self._resources = self.owner.run(library.StandardGpuResources)

    def copy(self, ann: AnnIndex, embeddings: NDArray[np.float32]) -> Any:
        """Copy a first stage to the GPU.

        Inverted lists and plain vectors go as they are. All else, graphs above all, has no form
        on cards; there the card compares with every vector, in less time than a processor needs
        for the graph.
        """
        index = ann.faiss_index
        library = self._library
        if isinstance(index, (library.IndexIVFFlat, library.IndexIVFScalarQuantizer)):
            return self.owner.run(lambda: self._inverted_lists(index, ann.search_width or 1))
        return self.owner.run(lambda: self._plain_vectors(embeddings))

    def close(self) -> None:
        """Stop the thread; no search is possible afterwards."""
        self.owner.close()

    def _inverted_lists(self, index: Any, lists: int) -> Any:
        copy = self._library.index_cpu_to_gpu(self._resources, 0, index)
        # The copy is private, so the parameter is set once instead of at each search.
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
    """Searches a copy of an ANN on a GPU, which takes no filters, and at most 2,048 neighbours."""

    def __init__(self, card: FaissCard, ann: AnnIndex, embeddings: NDArray[np.float32]) -> None:
        self._ann = ann
        self._owner = card.owner
        self._on_card = [card.copy(ann, embeddings)]
        # The thread that searches also frees the memory.
        weakref.finalize(self, card.owner.post, self._on_card.clear)

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> NDArray[np.int64] | None:
        wanted = max(math.ceil(count * self._ann.oversample), with_margin(count))
        wanted = min(wanted, self._ann.count)
        if allowed is not None or wanted > MOST_ON_CARD:
            return None
        on_card = self._on_card
        _, rows = self._owner.run(lambda: on_card[0].search(query[None], wanted))
        found: NDArray[np.int64] = rows[0]
        return found[found >= 0]
