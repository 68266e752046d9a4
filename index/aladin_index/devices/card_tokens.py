"""The second stage on a GPU: all tokens in their stored form, unpacked in blocks, by torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from aladin_index.devices.card import BLOCK_BYTES, Card
from aladin_index.tokens.quantisation import LEVELS
from aladin_index.tokens.store import TokenStore
from aladin_network.types import Modality

# Values of a token that exist at a time beside its stored form: codes as 32-bit numbers, what they
# stand for, the centroid, and the sum.
_COPIES = 5


class AskedTokens(NamedTuple):
    """The tokens of some queries of one modality, on the device.

    Attributes:
        values: (queries, longest, dim); zeros where there is no token.
        mask: (queries, longest), True at tokens.
        modality: Whether they are a text's words or a photo's regions.
    """

    values: Float[Tensor, "queries tokens dim"]
    mask: Bool[Tensor, "queries tokens"]
    modality: Modality


class CardTokens:
    """Scores items by late interaction; thread-safe.

    Similarities are products in the device's number format, and their sums are in float32.
    """

    def __init__(self, card: Card, tokens: TokenStore) -> None:
        """Copy the tokens to the device."""
        self._card, self._dim = card, tokens.codec.dim
        values, scales, ids = tokens.stored
        self._values = card.copy(values)
        self._scales = None if scales is None else card.copy(scales, card.dtype)
        # Torch's operations on 16 bits are those of numbers with a sign.
        self._ids = None if ids is None else card.copy(ids.view(np.int16))
        centroids = tokens.codec.centroids
        self._centroids = None if centroids is None else card.tensor(centroids, card.dtype)
        # The two values of each byte of 4-bit codes; the lower half is the first.
        codes = np.arange(256)
        self._pairs = card.tensor(LEVELS[np.stack([codes & 15, codes >> 4], axis=1)], card.dtype)
        self._offsets = card.copy(tokens.offsets)
        lengths = np.diff(tokens.offsets)
        self._longest = max(1, int(lengths.max(initial=0)))
        # Photos of one grid of regions need neither padding nor a mask.
        self._are_even = bool((lengths == self._longest).all())

    def asked(
        self, queries: Sequence[Float[np.ndarray, "query_tokens dim"]], modality: Modality
    ) -> AskedTokens:
        """Copy the tokens of queries to the device."""
        return AskedTokens(*self._card.padded(queries, self._card.dtype), modality)

    def items_at_a_time(self, tokens_asked: int) -> int:
        """Return how many items to score at a time with so many query tokens, all counted."""
        values = self._longest * (_COPIES * self._dim + tokens_asked)
        return max(1, BLOCK_BYTES // (values * self._card.dtype.itemsize))

    @torch.inference_mode()
    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        """Score the items of each query, those of as many queries together as a block holds."""
        scores = [np.zeros(len(of_query), dtype=np.float32) for of_query in rows]
        if not queries:
            return scores
        asked = self.asked(queries, modality)
        most = self.items_at_a_time(asked.mask.shape[1])
        # Parts of one query's items, each as long as a block at most.
        parts = [
            (query, slice(start, start + most))
            for query, of_query in enumerate(rows)
            for start in range(0, len(of_query), most)
        ]
        longest = max((len(rows[query][part]) for query, part in parts), default=1)
        for start in range(0, len(parts), most // longest):
            together = parts[start : start + most // longest]
            places = self._card.tensor(np.array([query for query, _ in together]))
            padded, _ = self._card.padded([rows[query][part] for query, part in together])
            each = AskedTokens(asked.values[places], asked.mask[places], modality)
            found = self._align(each, padded).cpu().numpy()
            for (query, part), of_part in zip(together, found, strict=True):
                scores[query][part] = of_part[: len(scores[query][part])]
        return scores

    def align_range(
        self, asked: AskedTokens, first: int, end: int
    ) -> Float[Tensor, "queries items"]:
        """Score the items from `first` to `end` for every query, on the device."""
        if self._are_even:
            tokens = self._unpacked(slice(first * self._longest, end * self._longest))
            tokens, real = tokens.unflatten(0, (end - first, self._longest)), None
        else:
            tokens, real = self._items(torch.arange(first, end, device=self._card.device))
        flat = tokens.flatten(0, 1) @ asked.values.flatten(0, 1).T
        similarity = flat.reshape(*tokens.shape[:2], *asked.mask.shape).permute(2, 0, 1, 3)
        return _late_interaction(similarity, asked, None if real is None else real.unsqueeze(0))

    def _align(
        self, asked: AskedTokens, rows: Int64[Tensor, "queries items"]
    ) -> Float[Tensor, "queries items"]:
        """Score the items of each query."""
        tokens, real = self._items(rows)  # (queries, items, tokens, dim)
        flat = tokens.flatten(1, 2) @ asked.values.transpose(1, 2)
        return _late_interaction(flat.unflatten(1, tokens.shape[1:3]), asked, real)

    def _items(
        self, rows: Int64[Tensor, "*items"]
    ) -> tuple[Float[Tensor, "*items tokens dim"], Bool[Tensor, "*items tokens"] | None]:
        """Return the tokens of some items, padded to the longest item, and which are real."""
        starts = self._offsets[rows].unsqueeze(-1)
        places = starts + torch.arange(self._longest, device=self._card.device)
        if self._are_even:
            return self._unpacked(places), None
        real = places < self._offsets[rows + 1].unsqueeze(-1)
        return self._unpacked(places.masked_fill(~real, 0)), real

    def _unpacked(self, places: Tensor | slice) -> Float[Tensor, "*tokens dim"]:
        """Return stored tokens in the device's number format."""
        values = self._values[places]
        if self._scales is None:
            return values.to(self._card.dtype)
        scales = self._scales[places].unsqueeze(-1)
        if self._ids is None or self._centroids is None:
            return values.to(self._card.dtype) * scales
        residuals = embedding(values.int(), self._pairs).flatten(-2)
        centroids = embedding(self._ids[places].int() & 0xFFFF, self._centroids)
        return residuals[..., : self._dim] * scales + centroids


def _late_interaction(
    similarity: Float[Tensor, "queries items tokens asked"],
    asked: AskedTokens,
    real: Bool[Tensor, "#queries items tokens"] | None,
) -> Float[Tensor, "queries items"]:
    """Sum the words' best regions (ALADIN eq 2); items and queries without tokens score 0."""
    if asked.modality == "text":
        if real is not None:
            similarity = similarity.masked_fill(~real.unsqueeze(-1), -torch.inf)
        best, words = similarity.amax(dim=2), asked.mask.unsqueeze(1)  # (queries, items, asked)
    else:
        similarity = similarity.masked_fill(~asked.mask[:, None, None], -torch.inf)
        best, words = similarity.amax(dim=3), real  # (queries, items, tokens)
    without = best == -torch.inf if words is None else ~words | (best == -torch.inf)
    return best.float().masked_fill(without, 0).sum(dim=2)
