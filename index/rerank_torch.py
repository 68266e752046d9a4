"""Late interaction in torch: the engine where no native kernel was compiled, and its reference."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from index.modality import Modality
from index.tokens.store import TokenBlock, TokenStore

# Tokens that are scored at a time. 4,096 of 128 float32 values are 2 MiB, which stay in a core's
# cache between the copy and the product: measured in turn, 1,000 photos of 49 regions took 4.2 ms
# so and 7.3 ms all at once. The memory of a query does not grow with its candidates either.
_TOKENS_AT_A_TIME = 2**12


def torch_alignment(
    query: Float[Tensor, "query_tokens dim"],
    query_modality: Modality,
    store: TokenStore,
    rows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Score candidates of one query; see `index.rerank.alignment_with_candidates`."""
    scores = np.zeros(len(rows), dtype=np.float32)
    if query.shape[0] == 0:
        return scores
    reach = np.cumsum(store.lengths(rows))
    start = 0
    while start < len(rows):
        before = reach[start - 1] if start else 0
        end = int(np.searchsorted(reach, before + _TOKENS_AT_A_TIME, side="right"))
        end = max(end, start + 1)
        scores[start:end] = _score_block(query, query_modality, store.read(rows[start:end]))
        start = end
    return scores


def _score_block(query: Tensor, query_modality: Modality, block: TokenBlock) -> NDArray[np.float32]:
    scores = np.zeros(len(block.lengths), dtype=np.float32)
    # reduceat takes no empty segment: items without tokens keep their 0.
    filled = block.lengths > 0
    if not filled.any():
        return scores
    starts = (np.cumsum(block.lengths) - block.lengths)[filled]
    similarity = query @ block.values.T  # (query_tokens, tokens)
    if query_modality == "text":
        best = np.maximum.reduceat(similarity.numpy(), starts, axis=1)  # (words, items)
        scores[filled] = best.sum(axis=0)
    else:
        best_region = torch.amax(similarity, dim=0).numpy()  # (words of all items,)
        scores[filled] = np.add.reduceat(best_region, starts)
    return scores
