"""The second stage: scoring of a query against the stored tokens of its candidates.

``S[image, text]`` is the sum, over the text's words, of the best region's similarity, whichever of
the two is the query; the numbers are those of `aladin_network.scoring.scores.maxsim` on the stored
tokens. The native kernel computes it if one was compiled for this installation, else numpy, whose
implementation here is also the reference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Protocol, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.kernel import Kernel, KernelError, Queries, blocks_read, load_kernel
from aladin_index.tokens.store import TokenBlock, TokenStore
from aladin_network.graphs.threads import compute_threads
from aladin_network.types import Modality, NullProgress, Progress

# Tokens that are scored at a time. 4,096 tokens of 128 float32 values are 2 MiB, which stay in a
# core's cache between the copy and the product: measured alternately, 1,000 photos of 49 regions
# took 4.2 ms this way and 7.3 ms all at once. It also keeps the memory of a query independent of
# its number of candidates.
_TOKENS_AT_A_TIME = 2**12

T = TypeVar("T")

# Candidates that justify a thread: they take half a millisecond, starting a thread 0.05 ms.
_CANDIDATES_A_THREAD = 512
# Items of an exhaustive search that are scored at a time: 6 MiB with 49 int8 tokens of 128 values.
_ITEMS_AT_A_TIME = 1024


def numpy_alignment(
    query: Float[np.ndarray, "query_tokens dim"],
    query_modality: Modality,
    store: TokenStore,
    rows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Score candidates of one query; see
    `aladin_index.tokens.maxsim.alignment_with_candidates`."""
    scores = np.zeros(len(rows), dtype=np.float32)
    if query.shape[0] == 0:
        return scores
    reach = np.cumsum(store.lengths(rows))
    start = 0
    while start < len(rows):
        before = reach[start - 1] if start else 0
        end = int(np.searchsorted(reach, before + _TOKENS_AT_A_TIME, side="right"))
        end = max(end, start + 1)
        scores[start:end] = score_block(query, query_modality, store.read(rows[start:end]))
        start = end
    return scores


def score_block(
    query: NDArray[np.float32], query_modality: Modality, block: TokenBlock
) -> NDArray[np.float32]:
    """Score some items, all at once, by numpy; see `alignment_with_candidates`."""
    scores = np.zeros(len(block.lengths), dtype=np.float32)
    # `reduceat` accepts no empty segments: items without tokens keep the score 0.
    filled = block.lengths > 0
    if len(query) == 0 or not filled.any():
        return scores
    starts = (np.cumsum(block.lengths) - block.lengths)[filled]
    similarity = query @ block.values.T  # (query_tokens, tokens)
    if query_modality == "text":
        best = np.maximum.reduceat(similarity, starts, axis=1)  # (words, items)
        scores[filled] = best.sum(axis=0)
    else:
        best_region = similarity.max(axis=0)  # (words of all items,)
        scores[filled] = np.add.reduceat(best_region, starts)
    return scores


def alignment_with_candidates(
    query: Float[np.ndarray, "query_tokens dim"],
    query_modality: Modality,
    store: TokenStore,
    rows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Score items of the other modality, float32; without tokens on either side a score is 0.

    Raises `IndexError` if a row is not in the store, and `IndexCorruptError` if that is damaged.
    """
    return alignment_of_queries([query], query_modality, store, [rows])[0]


def alignment_of_queries(
    queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
    query_modality: Modality,
    store: TokenStore,
    rows: Sequence[NDArray[np.int64]],
) -> list[NDArray[np.float32]]:
    """Score the candidates of several queries in one call."""
    kernel = load_kernel()
    if kernel is None:
        return [
            numpy_alignment(query, query_modality, store, candidates)
            for query, candidates in zip(queries, rows, strict=True)
        ]
    if not queries:
        return []
    are_regions = query_modality == "image"
    packed = Queries(queries, are_regions=are_regions)
    together = rows[0] if len(rows) == 1 else np.concatenate(rows)
    offsets = np.array([0, *accumulate(map(len, rows))], dtype=np.int64)

    blocks_before = blocks_read()
    if store.is_cold:
        store.warm_rows(together)

    def score(start: int, end: int) -> NDArray[np.float32]:
        ends = offsets.clip(start, end) - start
        return kernel.score_rows(store.native, packed, together[start:end], ends)

    try:
        if len(together) < 2 * _CANDIDATES_A_THREAD:  # not worth another thread
            scores = kernel.score_rows(store.native, packed, together, offsets)
        else:
            scores = np.concatenate(in_threads(score, len(together)))
    except KernelError as error:
        raise store.problem(error) from error
    store.is_cold = blocks_read() > blocks_before
    return [scores[start:end] for start, end in pairwise(offsets.tolist())]


def token_similarities(
    query: Float[np.ndarray, "query_tokens dim"],
    query_modality: Modality,
    store: TokenStore,
    rows: NDArray[np.int64],
) -> list[NDArray[np.float32]]:
    """Compare every token of a query with every token of some items.

    A product of the decoded tokens would not do: the kernel rounds queries, and over the words of
    a long text the difference to its scores becomes visible. So it is asked for each pair.
    """
    packed = store.packed(rows)
    each_alone = TokenStore.from_arrays(store.codec, packed, [1] * packed.count)
    places = np.arange(packed.count, dtype=np.int64)
    tokens = [query[place : place + 1] for place in range(len(query))]
    compared = alignment_of_queries(tokens, query_modality, each_alone, [places] * len(tokens))
    similarity = np.array(compared, dtype=np.float32).reshape(len(tokens), packed.count)
    return split_items(similarity, store.lengths(rows))


def split_items(
    similarity: NDArray[np.float32], lengths: NDArray[np.int64]
) -> list[NDArray[np.float32]]:
    """Split a matrix (query_tokens, tokens of all items) into those of the items."""
    borders = pairwise([0, *np.cumsum(lengths).tolist()])
    return [similarity[:, start:end] for start, end in borders]


def alignment_with_all(
    queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
    query_modality: Modality,
    store: TokenStore,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Score every item for several queries, (queries, items), reading the tokens sequentially."""
    progress = progress or NullProgress()
    progress.start(store.count, "items")
    scores = np.zeros((len(queries), store.count), dtype=np.float32)
    kernel = load_kernel()
    packed = None
    if queries:
        are_regions = query_modality == "image"
        packed = Queries(queries, are_regions=are_regions)
    step = _ITEMS_AT_A_TIME * compute_threads()
    for first in range(0, store.count, step):
        end = min(first + step, store.count)
        # Read ahead while this part is scored, for otherwise pages are loaded one by one.
        store.warm(end, min(end + step, store.count))
        if packed is None:
            pass
        elif kernel is None:
            rows = np.arange(first, end, dtype=np.int64)
            for place, query in enumerate(queries):
                scores[place, first:end] = numpy_alignment(query, query_modality, store, rows)
        else:
            score = partial(_score_range, kernel, store, packed, scores, first)
            try:
                in_threads(score, end - first)
            except KernelError as error:
                raise store.problem(error) from error
        progress.advance(end - first)
    return scores


def _score_range(
    kernel: Kernel,
    store: TokenStore,
    queries: Queries,
    scores: NDArray[np.float32],
    first: int,
    start: int,
    end: int,
) -> None:
    rows = slice(first + start, first + end)
    kernel.score_range(store.native, queries, rows.start, scores[:, rows])


def in_threads(task: Callable[[int, int], T], total: int) -> list[T]:
    """Run a task on parts of a range, each as (start, end); a single part uses this thread.

    There are at most `compute_threads` parts, each large enough for a thread.
    """
    parts = max(1, min(compute_threads(), total // _CANDIDATES_A_THREAD))
    if parts == 1:
        return [task(0, total)]
    borders = [total * part // parts for part in range(parts + 1)]
    return list(_pool().map(task, borders[:-1], borders[1:]))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="rerank")


class SecondStage(Protocol):
    """Scores candidates; thread-safe."""

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        """Score the items of several queries by late interaction, see `alignment_of_queries`."""
        ...

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare every token of a query with every token of some items.

        For each item (query_tokens, item_tokens) float32: the very numbers of which `align_all`
        takes the best and sums them up, to its last digits.
        """
        ...


class TokenAlignment:
    """The second stage on the CPU, on tokens in their storage format."""

    def __init__(self, tokens: TokenStore) -> None:
        """Score the items of `tokens`."""
        self._tokens = tokens

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        """Score items, see `SecondStage`."""
        return alignment_of_queries(queries, modality, self._tokens, rows)

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `SecondStage`."""
        return token_similarities(query, modality, self._tokens, rows)
