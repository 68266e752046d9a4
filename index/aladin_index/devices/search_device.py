"""Selects the device of queries and searches, tests it before use, and re-ranks on it.

If a device fails later, the CPU takes over, and one warning is logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.ann import faiss
from aladin_index.ann.first_stage import FirstStage, best_of
from aladin_index.devices.first_stages import FaissCard, GpuAnn, TorchExact
from aladin_index.items.selection import Selection
from aladin_index.search.live_collection import StoredCollection
from aladin_index.tokens.maxsim import SecondStage, split_items
from aladin_index.tokens.store import TokenStore
from aladin_network.scoring.scores import maxsim
from aladin_network.types import DeviceName, FirstStageName, Modality

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# Half precision and ties may make the end of the two lists differ, but no more.
_PROOF_SHARE = 0.9
_PROOF_QUERIES, _PROOF_COUNT = 4, 100
# Share of the free GPU memory that the tokens of a collection may take; the rest is for the other
# collection, a next generation loaded beside this one, and the network.
_TOKEN_SHARE = 0.25
# Rows of an array that are copied to the device at a time.
_ROWS_AT_A_TIME = 2**20


class DeviceHealth:
    """Whether a device can be used; shared by all its users."""

    def __init__(self) -> None:
        """Start as usable."""
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


class GuardedFirstStage:
    """Searches on a device, and on the CPU once the device has failed."""

    def __init__(self, on_device: FirstStage, spare: FirstStage, health: DeviceHealth) -> None:
        """Use `spare` once `health` is not good."""
        self._on_device = on_device
        self._spare = spare
        self._health = health

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> NDArray[np.int64]:
        """Find near rows, see `aladin_index.ann.first_stage.FirstStage`."""
        return self._health.guard(
            partial(self._on_device.search, query, count, allowed),
            partial(self._spare.search, query, count, allowed),
        )


class GuardedSecondStage:
    """Scores on a device, and on the CPU once the device has failed."""

    def __init__(self, on_device: SecondStage, spare: SecondStage, health: DeviceHealth) -> None:
        """Use `spare` once `health` is not good."""
        self._on_device = on_device
        self._spare = spare
        self._health = health

    def align(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction, see `aladin_index.tokens.maxsim.SecondStage`."""
        return self._health.guard(
            partial(self._on_device.align, query, modality, rows),
            partial(self._spare.align, query, modality, rows),
        )

    def similarities(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `aladin_index.tokens.maxsim.SecondStage`."""
        return self._health.guard(
            partial(self._on_device.similarities, query, modality, rows),
            partial(self._spare.similarities, query, modality, rows),
        )


class TorchAlignment:
    """Scores candidates on the device, in float32.

    The whole store is kept there if it fits; else the candidates' tokens are copied, query by
    query.
    """

    def __init__(self, tokens: TokenStore, device: torch.device, budget_bytes: int) -> None:
        """Copy the tokens to the device if they fit.

        Args:
            tokens: Tokens of the collection.
            device: Device that scores.
            budget_bytes: Maximum device memory of the tokens. Tokens of 4 and 2 bits are always
                copied, unpacked.

        Raises:
            RuntimeError: If the device does not have enough memory for the tokens in spite of the
                budget.
        """
        self._tokens = tokens
        self._device = device
        self._values: Tensor | None = None
        self._scales: Tensor | None = None
        stored = tokens.stored
        size = stored.count * tokens.codec.token_bytes
        if tokens.codec.centroids is None and size <= budget_bytes:
            self._values = _copied(stored.values, device)
            self._scales = None if stored.scales is None else _copied(stored.scales, device)

    @property
    def is_resident(self) -> bool:
        """Whether all tokens are on the device."""
        return self._values is not None

    def align(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction, see `aladin_index.tokens.maxsim.SecondStage`.

        Raises:
            RuntimeError: If the device has failed.
        """
        if len(rows) == 0 or len(query) == 0:
            return np.zeros(len(rows), dtype=np.float32)
        with torch.inference_mode():
            tokens, mask = self._padded(rows)
            asked = query.to(self._device, torch.float32).unsqueeze(0)
            asked_mask = torch.ones(asked.shape[:2], dtype=torch.bool, device=self._device)
            if modality == "text":
                scores = maxsim(asked, tokens, asked_mask, mask)[0]
            else:
                scores = maxsim(tokens, asked, mask, asked_mask)[:, 0]
        return scores.cpu().numpy()

    def similarities(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens on the CPU, see `aladin_index.tokens.maxsim.SecondStage`."""
        del modality  # the product of float32 tokens is the same from either side
        block = self._tokens.read(rows)
        similarity = (query.float().cpu() @ block.values.T).numpy()
        return split_items(similarity, block.lengths)

    def _padded(
        self, rows: NDArray[np.int64]
    ) -> tuple[Float[Tensor, "items tokens dim"], Bool[Tensor, "items tokens"]]:
        """Return padded tokens of some items on the device, and the mask of valid ones."""
        lengths = self._tokens.lengths(rows)
        place = np.arange(max(int(lengths.max()), 1))
        real = place < lengths[:, None]  # (items, tokens)
        mask = torch.from_numpy(real).to(self._device)
        if self._values is not None:
            starts = self._tokens.offsets[rows]
            places = torch.from_numpy(np.where(real, starts[:, None] + place, 0)).to(self._device)
            tokens = self._values[places].float()  # (items, tokens, dim)
            if self._scales is not None:
                tokens *= self._scales[places].unsqueeze(2)
            return tokens, mask
        flat = self._tokens.read(rows).values.to(self._device)
        tokens = flat.new_zeros((*real.shape, flat.shape[1]))
        tokens[mask] = flat
        return tokens, mask


def _copied(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy a mapped array to a device, without a second full copy in memory."""
    source = torch.from_numpy(array)
    copy = torch.empty(source.shape, dtype=source.dtype, device=device)
    for start in range(0, len(source), _ROWS_AT_A_TIME):
        copy[start : start + _ROWS_AT_A_TIME] = source[start : start + _ROWS_AT_A_TIME]
    return copy


class SearchDevice:
    """Moves the collections of indexes to a device, or leaves them on the CPU.

    One for a process: it owns the card's working memory, and warns at most once.
    """

    def __init__(
        self,
        device: torch.device,
        first_stage: FirstStageName = "faiss",
        library: Any = faiss,
    ) -> None:
        """Search on a device of torch.

        Args:
            device: Device; it must exist.
            first_stage: "faiss" searches the ANN, or its copy on a card, and re-ranks on the
                processor; "torch" compares with every embedding, and re-ranks on the card.
            library: FAISS.
        """
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
            return cls(torch.device("cpu"), first_stage)
        if torch.cuda.is_available():
            return cls(torch.device("cuda", 0), first_stage)
        if name == "cuda":
            _LOG.warning("searching on the CPU: torch finds no CUDA device")
        return cls(torch.device("cpu"))

    def place(self, side: StoredCollection) -> StoredCollection:
        """Return a collection whose stages run on the device, as far as they pass the test.

        The device is asked for the neighbours of some items, and has to find the ones that the
        processor finds. If it cannot, one warning says why, and the side stays as it is.
        """
        if self.device.type == "cpu" and self._first_stage == "faiss":
            return side
        if not self._health.is_good:
            return side
        try:
            first_stage = self._first_stage_of(side)
            prove(first_stage, side)
            guarded = GuardedFirstStage(first_stage, side.first_stage, self._health)
            if self._first_stage == "faiss" or self.device.type == "cpu":
                return replace(side, first_stage=guarded)
            alignment = TorchAlignment(side.tokens, self.device, self._token_budget_bytes())
            where = "kept on the device" if alignment.is_resident else "copied query by query"
            _LOG.info("tokens of the %s: %s", side.target, where)
            second_stage = GuardedSecondStage(alignment, side.second_stage, self._health)
            # Bounds are those of the scores on the processor.
            return replace(side, first_stage=guarded, second_stage=second_stage, bounds=None)
        except RuntimeError as error:  # what both FAISS and torch raise
            self._health.fail(error)
            return side

    def close(self) -> None:
        """Release the GPU; a running search is completed on the CPU."""
        if self._card is not None:
            self._card.close()

    def _first_stage_of(self, side: StoredCollection) -> FirstStage:
        if self._first_stage == "torch":
            on_card = self.device.type != "cpu"
            dtype = torch.float16 if on_card else torch.float32
            return TorchExact(side.embeddings, self.device, dtype)
        if self._card is None:
            self._card = FaissCard(self._library)
        return GpuAnn(self._card, side.ann, side.embeddings)

    def _token_budget_bytes(self) -> int:
        free, _ = torch.cuda.mem_get_info(self.device)
        return int(_TOKEN_SHARE * free)


def prove(engine: FirstStage, side: StoredCollection) -> None:
    """Check that a first stage finds the neighbours of some of its own items.

    Raises:
        RuntimeError: If it does not find those that the CPU finds.
    """
    count = min(_PROOF_COUNT, side.entry.count)
    for row in np.linspace(0, side.entry.count - 1, _PROOF_QUERIES).astype(np.int64):
        query = np.array(side.embeddings[row])
        rows = np.sort(side.ann.search(query, count))
        nearest, _ = best_of(side.embeddings, query, rows, count)
        found = np.intersect1d(engine.search(query, count), nearest)
        if len(found) < _PROOF_SHARE * len(nearest):
            raise RuntimeError(
                f"a search on the device found {len(found)} of the {len(nearest)} items that the "
                "processor finds"
            )
