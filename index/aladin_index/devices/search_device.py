"""Selects the device of queries and searches, plans its memory, and tests it before use.

If a device fails later, the CPU takes over, and one warning is logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.ann.exact_search import Nearest, best_of
from aladin_index.ann.first_stage import best_of_each, filled_up
from aladin_index.items.selection import Selection
from aladin_index.search.file_collection import StoredCollection
from aladin_index.search.scan import Scanned, ScanQuery
from aladin_network.errors import ConfigError
from aladin_network.types import DeviceName, Modality, Target

if TYPE_CHECKING:
    from aladin_index.devices.card import Card
    from aladin_index.devices.card_scan import CardScan
    from aladin_index.devices.card_tokens import CardTokens
    from aladin_index.devices.card_vectors import CardVectors

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


class DeviceSearch:
    """The first stage on a device; leaves searches to the CPU once the device has failed."""

    def __init__(
        self, vectors: CardVectors, collection: StoredCollection, health: DeviceHealth
    ) -> None:
        self._vectors, self._health = vectors, health
        self._ann, self._embeddings = collection.ann, collection.embeddings

    def nearest(
        self, queries: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> list[Nearest] | None:
        rows = self._health.guard(
            partial(self._vectors.search, queries, count, allowed), lambda: None
        )
        if rows is None:
            return None
        best = best_of_each(self._embeddings, queries, rows, count, self._ann)
        # Lists may hold too few; of fewer items than are wanted, all have been found.
        count = min(count, len(self._embeddings) if allowed is None else allowed.count)
        return filled_up(best, self._embeddings, queries, count, allowed)


class DeviceAlignment:
    """The second stage on a device, and on the CPU once the device has failed."""

    def __init__(
        self, tokens: CardTokens, collection: StoredCollection, health: DeviceHealth
    ) -> None:
        self._tokens, self._spare, self._health = tokens, collection.second_stage, health

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        return self._health.guard(
            partial(self._tokens.align_all, queries, modality, rows),
            partial(self._spare.align_all, queries, modality, rows),
        )

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        return self._spare.similarities(query, modality, rows)


class DeviceScan:
    """Exhaustive search on a device; leaves it to the CPU once the device has failed."""

    def __init__(self, scan: CardScan, health: DeviceHealth) -> None:
        self._scan, self._health = scan, health

    def best(
        self, queries: Sequence[ScanQuery], allowed: Selection | None = None
    ) -> list[Scanned] | None:
        return self._health.guard(partial(self._scan.best, queries, allowed), lambda: None)


class SearchDevice:
    """Moves the collections of indexes to a GPU, or leaves them on the CPU.

    One for a process: it owns the GPU's working memory, and warns at most once.

    Attributes:
        device: Torch's name of the device.
    """

    def __init__(self, card: Card | None = None, *, is_required: bool = False) -> None:
        """Search on a GPU, or on the CPU without one.

        Args:
            card: The GPU.
            is_required: Whether an index that the GPU cannot search is an error; otherwise the CPU
                searches it, after a warning.
        """
        self.device = "cpu" if card is None else str(card.device)
        self._card, self._is_required = card, is_required
        self._health = DeviceHealth()

    @classmethod
    def choose(cls, name: DeviceName) -> SearchDevice:
        """Search on the device with this name; "auto" takes a GPU if there is one.

        Raises:
            ConfigError: If "cuda" is asked for and there is no GPU, or FAISS cannot use it.
        """
        if name == "cpu" or (name == "auto" and not has_cuda()):
            return cls()
        if not has_cuda():
            raise ConfigError("--device cuda: PyTorch finds no CUDA device here; give cpu or auto")
        try:
            return cls(find_card(), is_required=name == "cuda")
        except RuntimeError as error:
            if name == "cuda":
                raise ConfigError(f"--device cuda: {error}") from error
            _LOG.warning("searching on the CPU: %s", error)
            return cls()

    @property
    def is_good(self) -> bool:
        """Whether nothing has failed; otherwise the CPU searches."""
        return self._health.is_good

    def place(
        self, collections: Mapping[Target, StoredCollection]
    ) -> Mapping[Target, StoredCollection]:
        """Return the collections of an index with both stages on the device.

        Its memory is planned before anything is copied. The device is asked for the neighbours of
        some items, and has to find the ones that the processor finds. If it cannot, the collections
        stay as they are, and one warning says why.

        Raises:
            ConfigError: If the device is required, and has too little memory or finds other items.
        """
        card = self._card
        if card is None or not self.is_good:
            return collections
        from aladin_index.devices.card import check_memory

        try:
            check_memory(collections, card)
            return {target: self._placed(card, each) for target, each in collections.items()}
        except (RuntimeError, ConfigError) as error:
            if self._is_required:
                raise ConfigError(f"--device cuda: {error}") from error
            if isinstance(error, RuntimeError):
                self._health.fail(error)
            else:  # another index may fit
                _LOG.warning("searching on the CPU: %s", error)
            return collections

    def close(self) -> None:
        """Release the GPU; a running search is completed on the CPU."""
        if self._card is not None:
            self._card.close()

    def _placed(self, card: Card, collection: StoredCollection) -> StoredCollection:
        from aladin_index.devices.card_scan import CardScan
        from aladin_index.devices.card_tokens import CardTokens
        from aladin_index.devices.card_vectors import CardVectors

        vectors = CardVectors(card, collection.ann, collection.embeddings)
        prove(vectors, collection)
        search = DeviceSearch(vectors, collection, self._health)
        # The others answer once the device has failed.
        placed = replace(collection, first_stages=(search, *collection.first_stages))
        if collection.entry.token_count == 0:
            return placed
        tokens = CardTokens(card, collection.tokens)
        return replace(
            placed,
            second_stage=DeviceAlignment(tokens, collection, self._health),
            scan=DeviceScan(CardScan(card, vectors, tokens), self._health),
            bounds=None,  # they are those of the scores on the processor
        )


def has_cuda() -> bool:
    """Whether torch is installed and finds a CUDA device."""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def find_card() -> Card:
    """Return the first GPU; raises `RuntimeError` if FAISS is built for GPUs and finds none."""
    import torch

    from aladin_index.devices.card import Card
    from aladin_index.devices.faiss_card import FaissCard, supports_cards

    if not supports_cards():
        _LOG.info("FAISS has no support for GPUs (faiss-cpu): torch compares with every item")
    return Card(torch.device("cuda:0"), faiss=FaissCard() if supports_cards() else None)


def prove(vectors: CardVectors, collection: StoredCollection) -> None:
    """Check that a device finds neighbours of some items as near as those that the processor finds.

    Both are judged by the nearest of what either has found.
    """
    count = min(_PROOF_COUNT, collection.entry.count)
    places = np.linspace(0, collection.entry.count - 1, _PROOF_QUERIES).astype(np.int64)
    queries = np.array(collection.embeddings[places])
    for query, rows in zip(queries, vectors.search(queries, count), strict=True):
        known = collection.ann.search(query, count)
        either = np.union1d(rows, known)
        nearest, _ = best_of(collection.embeddings, query, either, count)
        found, expected = (len(np.intersect1d(each, nearest)) for each in (rows, known))
        if found < _PROOF_SHARE * expected:
            raise RuntimeError(
                f"a search on the device found {found} of the nearest {count} items, the "
                f"processor {expected}"
            )
