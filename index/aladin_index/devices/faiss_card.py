"""FAISS on a GPU, which permits one thread: all its calls are made by one."""

from __future__ import annotations

import importlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

# Maximum numbers of neighbours and of lists of FAISS's GPU kernels.
MOST_ON_CARD = 2048
# FAISS's working memory; it would take 1.5 GiB.
FAISS_BYTES = 2**29


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
    """A GPU as FAISS uses it: its working memory, and the only thread that may use it."""

    def __init__(self, library: Any = faiss) -> None:
        """Reserve the working memory; raises `RuntimeError` if FAISS finds no GPU."""
        if library.get_num_gpus() == 0:
            raise RuntimeError("FAISS finds no GPU")
        self._library = library
        self._owner = OwnerThread("faiss-card")
        self._resources = self._owner.run(self._reserve)

    def copy_lists(self, index: Any, lists: int) -> CardLists:
        """Copy inverted lists to the GPU, of which a search reads the nearest `lists`."""

        def copy() -> Any:
            made = self._library.index_cpu_to_gpu(self._resources, 0, index)
            # The copy is private, so the parameter is set once instead of at each search.
            made.nprobe = min(lists, MOST_ON_CARD)
            return made

        return CardLists(self._owner, self._owner.run(copy))

    def search_lists(
        self, lists: CardLists, queries: NDArray[np.float32], count: int
    ) -> NDArray[np.int64]:
        """Search inverted lists; rows (queries, count), -1 where too few were found."""
        [index] = lists.box
        found: NDArray[np.int64] = self._owner.run(lambda: index.search(queries, count)[1])
        return found

    def search_all(self, vectors: Tensor, queries: Tensor, count: int) -> NDArray[np.int64]:
        """Compare with every vector, which is on the GPU already; rows (queries, count)."""
        library = self._library

        def search() -> NDArray[np.int64]:
            found = library.knn_gpu(
                self._resources, queries, vectors, count, metric=library.METRIC_INNER_PRODUCT
            )
            rows: Tensor = found[1]
            return rows.cpu().numpy()

        return self._owner.run(search)

    def close(self) -> None:
        """Stop the thread; no search is possible afterwards."""
        self._owner.close()

    def _reserve(self) -> Any:
        if self._library is faiss:
            # FAISS's own addition, by which `knn_gpu` takes tensors.
            importlib.import_module("faiss.contrib.torch_utils")
        resources = self._library.StandardGpuResources()
        resources.setTempMemory(FAISS_BYTES)
        return resources


class CardLists:
    """Inverted lists on a GPU; the thread that searches them also frees their memory."""

    def __init__(self, owner: OwnerThread, index: Any) -> None:
        self.box = [index]
        weakref.finalize(self, owner.post, self.box.clear)


def has_card_form(index: Any) -> bool:
    """Whether FAISS can search a copy of an index on a GPU: not graphs, nor codes of 4 bits."""
    return isinstance(index, (faiss.IndexIVFFlat, faiss.IndexIVFScalarQuantizer))


def supports_cards(library: Any = faiss) -> bool:
    """Whether this FAISS was built with support for GPUs."""
    return hasattr(library, "StandardGpuResources")
