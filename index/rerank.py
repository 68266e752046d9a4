"""The second stage: one query against its candidates, in one matrix product.

``S[image, text]`` is the sum over the text's words of the best region, whichever of the two is
the query; the numbers are those of `aladin.scoring.maxsim` on the stored tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aladin.progress import NullProgress, Progress
from index.token_store import TokenBlock, TokenStore

# Tokens that are scored at a time. 4,096 of 128 float32 values are 2 MiB, which stay in a core's
# cache between the copy and the product: measured in turn, 1,000 photos of 49 regions took 4.2 ms
# so and 7.3 ms all at once. The memory of a query does not grow with its candidates either.
_TOKENS_AT_A_TIME = 2**12
_ITEMS_AT_A_TIME = 2**10


def alignment_with_candidates(
    query: Float[Tensor, "query_tokens dim"],
    query_modality: Literal["text", "image"],
    store: TokenStore,
    rows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Score items of the other modality by late interaction.

    Args:
        query: the query's real tokens, float32, on the processor's memory.
        query_modality: whether they are words or regions.
        store: of the other modality.
        rows: (candidates,) int64.

    Returns:
        (candidates,) float32; an item or a query without tokens scores 0.
    """
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


def alignment_of_queries(
    queries: Sequence[Float[Tensor, "query_tokens dim"]],
    query_modality: Literal["text", "image"],
    store: TokenStore,
    rows: Sequence[NDArray[np.int64]],
) -> list[NDArray[np.float32]]:
    """Score the candidates of several queries in one call.

    Args:
        queries: the real tokens of each query, see `alignment_with_candidates`.
        query_modality: of all queries.
        store: of the other modality.
        rows: the candidates of each query, int64.

    Returns:
        The scores of each query's candidates, float32.
    """
    return [
        alignment_with_candidates(query, query_modality, store, candidates)
        for query, candidates in zip(queries, rows, strict=True)
    ]


def alignment_with_all(
    queries: Sequence[Float[Tensor, "query_tokens dim"]],
    query_modality: Literal["text", "image"],
    store: TokenStore,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Score every item for several queries, reading the tokens once and in their order.

    Args:
        queries: the real tokens of each query, see `alignment_with_candidates`.
        query_modality: of all queries.
        store: of the other modality.
        progress: advanced item by item.

    Returns:
        (queries, items) float32.
    """
    progress = progress or NullProgress()
    progress.start(store.count, "items")
    scores = np.empty((len(queries), store.count), dtype=np.float32)
    for start in range(0, store.count, _ITEMS_AT_A_TIME):
        rows = np.arange(start, min(start + _ITEMS_AT_A_TIME, store.count), dtype=np.int64)
        for place, query in enumerate(queries):
            scores[place, rows] = alignment_with_candidates(query, query_modality, store, rows)
        progress.advance(len(rows))
    return scores


def _score_block(
    query: Tensor, query_modality: Literal["text", "image"], block: TokenBlock
) -> NDArray[np.float32]:
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
