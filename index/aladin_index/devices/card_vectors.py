"""The first stage on a GPU: all embeddings in half precision, compared by FAISS or by torch.

FAISS's kernels know no filters and find at most 2,048 rows; such searches are torch's, on the same
copy of the embeddings. Cosines in half precision only choose rows: their order is decided by exact
cosines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.first_stage_build import CARD_FLAT_UP_TO
from aladin_index.devices.card import BLOCK_BYTES, Card
from aladin_index.devices.faiss_card import MOST_ON_CARD, FaissCard, has_card_form
from aladin_index.items.selection import Selection

# Finds rows by FAISS: for queries (queries, width), so many each.
FindRows = Callable[[NDArray[np.float32], int], NDArray[np.int64]]


def with_margin(count: int) -> int:
    """Return how many rows to request of half-precision vectors to include the best `count`.

    They change the order only where cosines agree to 0.001; re-scoring with exact cosines then
    finds the right ones.
    """
    return count + count // 10 + 16


class CardVectors:
    """Finds the rows whose embeddings are nearest to queries; thread-safe.

    Attributes:
        values: (items, width), on the device.
    """

    def __init__(self, card: Card, ann: AnnIndex, embeddings: NDArray[np.float32]) -> None:
        """Copy the embeddings to the device, and inverted lists where FAISS is to search them."""
        self._card, self._ann = card, ann
        self.values: Float[Tensor, "items width"] = card.copy(embeddings, card.dtype)
        self._by_faiss: FindRows | None = None
        if card.faiss is not None:
            self._by_faiss = _faiss_search(card, card.faiss, ann, self.values)

    def search(
        self, queries: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> list[NDArray[np.int64]]:
        """Find at least `count` near rows of each of (queries, width), in any order, in one call.

        Fewer are found if fewer are allowed. Raises `RuntimeError` if the device has failed.
        """
        wanted = max(math.ceil(count * self._ann.oversample), with_margin(count))
        if self._by_faiss is not None and allowed is None and wanted <= MOST_ON_CARD:
            rows = self._by_faiss(queries, min(wanted, len(self.values)))
        else:
            mask = None if allowed is None else self._card.tensor(allowed.mask)
            asked = self._card.tensor(queries, self._card.dtype)
            rows = self._compare(asked, min(with_margin(count), len(self.values)), mask)
        return [of_query[of_query >= 0] for of_query in rows]

    @torch.inference_mode()
    def _compare(
        self,
        queries: Float[Tensor, "queries width"],
        count: int,
        mask: Bool[Tensor, " items"] | None,
    ) -> NDArray[np.int64]:
        """Compare with every embedding; -1 in the place of rows that are not allowed."""
        scores, rows = [], []
        step = max(1, BLOCK_BYTES // (self.values.element_size() * len(queries)))
        for start in range(0, len(self.values), step):
            part = queries @ self.values[start : start + step].T  # (queries, rows)
            if mask is not None:
                part.masked_fill_(~mask[start : start + step], -torch.inf)
            best = part.topk(min(count, part.shape[1]), sorted=False)
            scores.append(best.values)
            rows.append(best.indices + start)
        best = torch.cat(scores, dim=1).topk(count, sorted=False)
        found = torch.cat(rows, dim=1).gather(1, best.indices)
        return found.masked_fill(best.values == -torch.inf, -1).cpu().numpy()


def _faiss_search(card: Card, faiss: FaissCard, ann: AnnIndex, values: Tensor) -> FindRows:
    """Return the search of FAISS: of inverted lists if there are many items, else of all items."""
    if len(values) > CARD_FLAT_UP_TO and has_card_form(ann.faiss_index):
        return partial(faiss.search_lists, faiss.copy_lists(ann.faiss_index, ann.search_width or 1))
    return lambda queries, count: faiss.search_all(values, card.tensor(queries, card.dtype), count)
