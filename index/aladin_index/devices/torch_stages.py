"""Both stages on a device by torch: exhaustive search, and late interaction of the candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.devices.faiss_card import with_margin
from aladin_index.items.selection import Selection
from aladin_index.tokens.maxsim import split_items
from aladin_index.tokens.store import TokenStore
from aladin_network.scoring.scores import maxsim
from aladin_network.types import Modality

# Rows of an array that are compared, or copied to the device, at a time: 2 MiB of float16 scores.
_ROWS_AT_A_TIME = 2**20
# Share of the free GPU memory that the tokens of a collection may take; the rest is for the other
# collection, a next generation loaded beside this one, and the network.
_TOKEN_SHARE = 0.25


class TorchExact:
    """Compares a query with every embedding in half precision; filters run on the device."""

    def __init__(
        self,
        embeddings: NDArray[np.float32],
        device: torch.device,
        dtype: torch.dtype = torch.float16,
    ) -> None:
        count, dim = embeddings.shape
        self._device = device
        self._vectors = torch.empty((count, dim), dtype=dtype, device=device)
        for start in range(0, count, _ROWS_AT_A_TIME):
            part = torch.tensor(embeddings[start : start + _ROWS_AT_A_TIME])
            self._vectors[start : start + len(part)] = part.to(dtype)

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> NDArray[np.int64]:
        total = len(self._vectors)
        wanted = min(with_margin(count), total)
        vector = torch.from_numpy(query).to(self._device, self._vectors.dtype)
        mask = None if allowed is None else torch.from_numpy(allowed.mask).to(self._device)
        scores, rows = [], []
        with torch.inference_mode():
            for start in range(0, total, _ROWS_AT_A_TIME):
                part = self._vectors[start : start + _ROWS_AT_A_TIME] @ vector  # (rows,)
                if mask is not None:
                    part.masked_fill_(~mask[start : start + len(part)], -torch.inf)
                best = part.topk(min(wanted, len(part)), sorted=False)
                scores.append(best.values)
                rows.append(best.indices + start)
            best = torch.cat(scores).topk(wanted, sorted=False)
            found = torch.cat(rows)[best.indices]
            found = found[best.values > -torch.inf]
        return found.cpu().numpy()


class TorchAlignment:
    """Scores candidates on the device, in float32.

    The whole store is kept there if it fits; else the candidates' tokens are copied, query by
    query.
    """

    def __init__(self, tokens: TokenStore, device: torch.device, budget_bytes: int) -> None:
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

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        pairs = zip(queries, rows, strict=True)
        return [self.align(query, modality, of_query) for query, of_query in pairs]

    def align(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score the items of one query; raises `RuntimeError` if the device has failed."""
        if len(rows) == 0 or len(query) == 0:
            return np.zeros(len(rows), dtype=np.float32)
        with torch.inference_mode():
            tokens, mask = self._padded(rows)
            asked = torch.from_numpy(query).to(self._device).unsqueeze(0)
            asked_mask = torch.ones(asked.shape[:2], dtype=torch.bool, device=self._device)
            if modality == "text":
                scores = maxsim(asked, tokens, asked_mask, mask)[0]
            else:
                scores = maxsim(tokens, asked, mask, asked_mask)[:, 0]
        return scores.cpu().numpy()

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        del modality  # the product of float32 tokens is the same from either side
        block = self._tokens.read(rows)
        return split_items(query @ block.values.T, block.lengths)

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
        flat = torch.from_numpy(self._tokens.read(rows).values).to(self._device)
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


def exact_search_on(embeddings: NDArray[np.float32], device: str) -> TorchExact:
    """Return an exhaustive first stage: in half precision on a card, in float32 on the CPU."""
    dtype = torch.float32 if device == "cpu" else torch.float16
    return TorchExact(embeddings, torch.device(device), dtype)


def alignment_on_card(tokens: TokenStore, device: str) -> TorchAlignment:
    """Return a second stage on a card; it keeps the tokens if enough of the memory is free."""
    free, _ = torch.cuda.mem_get_info(device)
    return TorchAlignment(tokens, torch.device(device), int(_TOKEN_SHARE * free))
