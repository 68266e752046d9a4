"""Selects the device of queries and searches, tests it before use, and re-ranks on it.

If a device fails later, the CPU takes over, and one warning is logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.exact_search import Nearest, best_of
from aladin_index.ann.first_stage import best_of_each, filled_up, first_stages
from aladin_index.devices.faiss_card import FaissCard, GpuAnn
from aladin_index.items.selection import Selection
from aladin_index.search.file_collection import StoredCollection
from aladin_index.tokens.maxsim import SecondStage
from aladin_network.types import DeviceName, FirstStageName, Modality

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# Half precision and ties may make the end of the two lists differ, but no more.
_PROOF_SHARE = 0.9
_PROOF_QUERIES, _PROOF_COUNT = 4, 100


class DeviceHealth:
    """Whether a device can be used; shared by all its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed = False

    @property
    def is_good(self) -> bool:
        """Whether nothing has failed."""
        return not self._failed

    def fail(self, reason: object) -> None:
        """Stop using the device; the first reason is logged."""
        with self._lock:
            first, self._failed = not self._failed, True
        if first:
            _LOG.warning("searching on the CPU: %s", reason)

    def guard(self, on_device: Callable[[], T], spare: Callable[[], T]) -> T:
        """Run a call on the device, or on the CPU once the device has failed."""
        if self.is_good:
            try:
                return on_device()
            except RuntimeError as error:  # what both FAISS and torch raise
                self.fail(error)
        return spare()


class RowSearch(Protocol):
    """Finds near rows on a device; raises `RuntimeError` if the device has failed."""

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> NDArray[np.int64] | None:
        """Find near rows in any order, or None if the device does not take such a search.

        More than `count` are found where the device cannot tell which of them are the nearest.
        """
        ...


class DeviceSearch:
    """The first stage on a device; leaves searches to the CPU once the device has failed."""

    def __init__(
        self, on_device: RowSearch, collection: StoredCollection, health: DeviceHealth
    ) -> None:
        self._on_device, self._health = on_device, health
        self._ann, self._embeddings = collection.ann, collection.embeddings

    def nearest(
        self, queries: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> list[Nearest] | None:
        search, found = self._on_device.search, list[NDArray[np.int64]]()
        for query in queries:
            rows = self._health.guard(partial(search, query, count, allowed), lambda: None)
            if rows is None:
                return None
            found.append(rows)
        best = best_of_each(self._embeddings, queries, found, count, self._ann)
        return filled_up(best, self._embeddings, queries, count, allowed)


class DeviceAlignment:
    """The second stage on a device, and on the CPU once the device has failed."""

    def __init__(self, on_device: SecondStage, spare: SecondStage, health: DeviceHealth) -> None:
        self._on_device = on_device
        self._spare = spare
        self._health = health

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        return self._health.guard(
            partial(self._on_device.align_all, queries, modality, rows),
            partial(self._spare.align_all, queries, modality, rows),
        )

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        return self._health.guard(
            partial(self._on_device.similarities, query, modality, rows),
            partial(self._spare.similarities, query, modality, rows),
        )


class SearchDevice:
    """Moves the collections of indexes to a device, or leaves them on the CPU.

    One for a process: it owns the card's working memory, and warns at most once.
    """

    def __init__(
        self,
        device: str = "cpu",
        first_stage: FirstStageName = "faiss",
        library: Any = faiss,
    ) -> None:
        self.device = device
        self._first_stage: FirstStageName = first_stage
        self._library = library
        self._health = DeviceHealth()
        self._card: FaissCard | None = None

    @classmethod
    def choose(cls, name: DeviceName, first_stage: FirstStageName = "faiss") -> SearchDevice:
        """Search on the device with this name.

        Args:
            name: "auto" takes the card if there is one; "cuda" warns if there is none, and
                searches as it would have without.
            first_stage: First stage to use, see `__init__`.
        """
        if name == "cpu":
            return cls("cpu", first_stage)
        if has_cuda():
            return cls("cuda:0", first_stage)
        if name == "cuda":
            _LOG.warning("searching on the CPU: torch finds no CUDA device")
        return cls()

    @property
    def is_good(self) -> bool:
        """Whether nothing has failed; otherwise the CPU searches."""
        return self._health.is_good

    def place(self, collection: StoredCollection) -> StoredCollection:
        """Return a collection whose stages run on the device, as far as they pass the test.

        The device is asked for the neighbours of some items, and has to find the ones that the
        processor finds. If it cannot, one warning says why, and the collection stays as it is.
        """
        if self.device == "cpu" and self._first_stage == "faiss":
            return collection
        if not self.is_good:
            return collection
        try:
            on_device = self._first_stage_of(collection)
            prove(on_device, collection)
            search = DeviceSearch(on_device, collection, self._health)
            stages = first_stages(collection.ann, collection.embeddings, search)
            if self._first_stage == "faiss" or self.device == "cpu":
                return replace(collection, first_stages=stages)
            from aladin_index.devices.torch_stages import alignment_on_card

            alignment = alignment_on_card(collection.tokens, self.device)
            where = "kept on the device" if alignment.is_resident else "copied query by query"
            _LOG.info("tokens of the %s: %s", collection.target, where)
            second_stage = DeviceAlignment(alignment, collection.second_stage, self._health)
            # Bounds are those of the scores on the processor.
            return replace(collection, first_stages=stages, second_stage=second_stage, bounds=None)
        except RuntimeError as error:  # what both FAISS and torch raise
            self._health.fail(error)
            return collection

    def close(self) -> None:
        """Release the GPU; a running search is completed on the CPU."""
        if self._card is not None:
            self._card.close()

    def _first_stage_of(self, collection: StoredCollection) -> RowSearch:
        if self._first_stage == "torch":
            from aladin_index.devices.torch_stages import exact_search_on

            return exact_search_on(collection.embeddings, self.device)
        if self._card is None:
            self._card = FaissCard(self._library)
        return GpuAnn(self._card, collection.ann, collection.embeddings)


def has_cuda() -> bool:
    """Whether torch is installed and finds a CUDA device."""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def prove(on_device: RowSearch, collection: StoredCollection) -> None:
    """Check that a first stage finds the neighbours of some of its own items."""
    count = min(_PROOF_COUNT, collection.entry.count)
    for row in np.linspace(0, collection.entry.count - 1, _PROOF_QUERIES).astype(np.int64):
        query = np.array(collection.embeddings[row])
        rows = np.sort(collection.ann.search(query, count))
        nearest, _ = best_of(collection.embeddings, query, rows, count)
        rows = on_device.search(query, count)
        found = nearest if rows is None else np.intersect1d(rows, nearest)
        if len(found) < _PROOF_SHARE * len(nearest):
            raise RuntimeError(
                f"a search on the device found {len(found)} of the {len(nearest)} items that the "
                "processor finds"
            )
