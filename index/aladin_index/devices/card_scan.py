"""Exhaustive search on a GPU: both stages score every item there, and the best are found there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.devices.card import Card
from aladin_index.devices.card_tokens import CardTokens
from aladin_index.devices.card_vectors import CardVectors, with_margin
from aladin_index.items.selection import Selection
from aladin_index.search.scan import Scanned, ScanQuery
from aladin_network.types import Modality


class CardScan:
    """Finds the best of all items for several queries; see `aladin_index.search.scan.ItemScan`."""

    def __init__(self, card: Card, vectors: CardVectors, tokens: CardTokens) -> None:
        """Score the items of a collection, all of which are on the device."""
        self._card, self._vectors, self._tokens = card, vectors.values, tokens

    def best(self, queries: Sequence[ScanQuery], allowed: Selection | None = None) -> list[Scanned]:
        """Score every item for every query; raises `RuntimeError` if the device has failed."""
        mask = None if allowed is None else self._card.tensor(allowed.mask)
        found: dict[int, Scanned] = {}
        for modality in get_args(Modality):
            places = [at for at, each in enumerate(queries) if each.modality == modality]
            if places:
                of_modality = self._scan([queries[at] for at in places], modality, mask)
                found.update(zip(places, of_modality, strict=True))
        return [found[at] for at in range(len(queries))]

    @torch.inference_mode()
    def _scan(
        self, queries: Sequence[ScanQuery], modality: Modality, mask: Bool[Tensor, " items"] | None
    ) -> list[Scanned]:
        """Score every item, block by block, and keep the best of each."""
        card, count = self._card, len(self._vectors)
        asked = self._tokens.asked([each.tokens for each in queries], modality)
        vectors = card.tensor(np.stack([each.vector for each in queries]), card.dtype)
        biases = card.tensor(np.array([[each.bias_count] for each in queries], np.float32))
        own = [(at, row) for at, each in enumerate(queries) for row in each.query.without]
        wanted = min(with_margin(max(each.wanted for each in queries)), count)
        match = torch.empty((len(queries), count), dtype=card.dtype, device=card.device)
        totals, rows = [], []
        step = self._tokens.items_at_a_time(asked.mask.numel())
        for first in range(0, count, step):
            end = min(first + step, count)
            block = self._vectors[first:end]
            of_block = match[:, first:end]
            torch.matmul(vectors, block.T, out=of_block)
            align = self._tokens.align_range(asked, first, end)
            if any(each.bias_count for each in queries):
                align += biases * block[:, -1]
            total = _fused(queries, align, of_block.float())
            # What a filter leaves out, and a query's own items, are neither hits nor counted.
            for at, row in own:
                if first <= row < end:
                    match[at, row] = -torch.inf
            if mask is not None:
                of_block.masked_fill_(~mask[first:end], -torch.inf)
            total.masked_fill_(of_block == -torch.inf, -torch.inf)
            best = total.topk(min(wanted, end - first), sorted=False)
            totals.append(best.values)
            rows.append(best.indices + first)
        best = torch.cat(totals, dim=1).topk(wanted, sorted=False)
        nearest = min(with_margin(max(each.nearest for each in queries)), count)
        chosen = [torch.cat(rows, dim=1).gather(1, best.indices)]
        chosen.append(match.topk(nearest, sorted=False).indices)
        found = torch.cat(chosen, dim=1)
        is_allowed = match.gather(1, found) > -torch.inf
        of_each = zip(found.cpu().numpy(), is_allowed.cpu().numpy(), match, strict=True)
        return [
            Scanned(np.unique(of_query[real]), _Nearer(card, cosines))
            for of_query, real, cosines in of_each
        ]


class _Nearer:
    """Counts the items that are nearer to a query than others, see `Scanned`."""

    def __init__(self, card: Card, match: Float[Tensor, " items"]) -> None:
        self._card, self._match = card, match

    def __call__(self, rows: NDArray[np.int64], cosines: NDArray[np.float32]) -> NDArray[np.int64]:
        # An item is compared by its cosine here, whose rounding is that of the others'.
        own = self._match[self._card.tensor(rows.clip(min=0))]
        limits = self._card.tensor(cosines, own.dtype).where(self._card.tensor(rows < 0), own)
        return (self._match > limits.unsqueeze(1)).sum(dim=1).cpu().numpy()


def _fused(
    queries: Sequence[ScanQuery],
    align: Float[Tensor, "queries items"],
    match: Float[Tensor, "queries items"],
) -> Float[Tensor, "queries items"]:
    """Fuse the scores of each query by its own constants."""
    constants = [(each.query.fusion, each.query.weight) for each in queries]
    if constants.count(constants[0]) == len(constants):
        fusion, weight = constants[0]
        return fusion.combine(align, match, weight)
    each = enumerate(constants)
    fused = [fusion.combine(align[at], match[at], weight) for at, (fusion, weight) in each]
    return torch.stack(fused)
