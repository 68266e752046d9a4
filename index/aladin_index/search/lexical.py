"""Searches by words as well: items whose own texts have rare words of the query.

A word counts by how rare it is: 1 if one item alone has it, less for more items, and nothing beyond
one in a hundred, since both stages find what is frequent. Items that have counting words join the
candidates and are scored by both stages. What the words add to a score is `lexical`, times the sum
of what they count, times twice the distance of the best score of these items to the worst: with 1,
an item that alone has a word passes all items that have none or one that counts up to a half,
whatever the scores of the model are.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.words import FoundWords, WordIndex, words_of
from aladin_index.search.candidates import Found, Ranking, ValidSearch, find_pool
from aladin_index.search.collection import Collection
from aladin_index.search.deadline import OutOfTimeError, RerankDeadline
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.rerank import RankedPage

# Items that have a word, at most, for the word to count: a share, and a number for small indexes.
_RARE_SHARE, _RARE_ITEMS = 0.01, 5
# Items that join the candidates, at most.
_MOST_ITEMS = 1000


def find_words(collection: Collection, text: str) -> FoundWords | None:
    """Find the items that pass a collection's filter and have rare words of a text.

    Returns:
        The items, or None if the collection is in a vector database, which has no words.

    Raises:
        IndexCorruptError: If the items cannot be read.
    """
    if not isinstance(collection, FileCollection):
        return None
    words = words_of(text)
    base, changes, selection = collection.base, collection.changes, collection.selection
    indexes: list[tuple[WordIndex, int]] = [(base.items.words, base.entry.count)]
    if changes is not None:
        indexes.append((changes.added.words, changes.rows))
    count = max(collection.count, 1)
    most = max(_RARE_SHARE * count, _RARE_ITEMS)
    removed = None if changes is None else changes.gone
    each = [index.find(words, end, most, removed) for index, end in indexes]
    rare: list[str] = []
    sums: dict[int, float] = {}
    for word, *lists in zip(words, *each, strict=True):
        rows = [row for of_index in lists for row in of_index or ()]
        if None in lists or not 0 < len(rows) <= most:
            continue
        rare.append(word)
        # The fourth power tells a name from words that are merely uncommon, such as "photo".
        weight = (math.log((1 + count) / min(len(rows), count)) / math.log(1 + count)) ** 4
        for row in rows:
            if selection is None or row in selection.bitmap:
                sums[row] = sums.get(row, 0.0) + weight
    best = sorted(sums, key=lambda row: (-sums[row], row))[:_MOST_ITEMS]
    weights = np.array([sums[row] for row in best], dtype=np.float32)
    return FoundWords(rare, np.array(best, dtype=np.int64), weights)


def rank_with_words(
    search: ValidSearch, words: FoundWords, clock: RerankDeadline
) -> tuple[Found, RankedPage]:
    """Find the page's hits by both stages and by words.

    The first block is the candidates of the first stage and the items that have the words; further
    blocks follow as without words.

    Args:
        search: The search.
        words: Items that have words of its query.
        clock: Stops the second stage at the search's deadline.
    """
    options, collection = search.options, search.collection
    last = options.offset + options.k
    # With all items as candidates, all are scored, without bounds.
    block = max(collection.count, 1) if search.is_exhaustive else search.candidates
    beyond = -(-max(last - block, 0) // block) * block
    count = block + beyond + len(words.rows) + len(search.own_rows)
    ordered = collection.order(search.embedding, count, block, search.second_stage)
    kept = ~np.isin(ordered.rows, search.own_rows)
    ordered = ordered._replace(rows=ordered.rows[kept], match=ordered.match[kept], upper=None)
    head = ordered.rows[:block]
    others = ~np.isin(words.rows, search.own_rows)
    extra = words.rows[others & ~np.isin(words.rows, head)]
    tail = np.flatnonzero(~np.isin(ordered.rows[block:], extra))[:beyond] + block
    rows = np.concatenate([head, extra, ordered.rows[tail]])
    match = np.concatenate([ordered.match[:block], _match(search, extra), ordered.match[tail]])
    first_size = len(head) + len(extra)
    blocks = np.concatenate(
        [np.zeros(first_size, dtype=np.int64), 1 + np.arange(len(tail)) // block]
    )
    scores, align, degraded = match, None, None
    pool = find_pool(search, ordered, ranks_head=False)
    pool_align = None
    if search.second_stage is not None:
        try:
            align, pool_align = _align(search, rows, pool.rows, clock)
        except OutOfTimeError:
            degraded: Literal["rerank", "rerank_timeout"] | None = "rerank_timeout"
    elif options.rerank and search.is_crossing and search.is_aligned:
        degraded = "rerank"
    reranked = search.reranks and align is not None
    if reranked and align is not None:
        scores = search.fusion.combine(align, match, search.weight)
    scores = scores.astype(np.float32) + _bonus(scores[:first_size], rows, words, options.lexical)
    order = np.lexsort((-match, -scores, blocks))
    ranking = Ranking(rows, scores, match, _ranks(match), align, None)
    if align is not None:
        ranking = ranking._replace(align_ranks=_ranks(align))
    ranking = ranking.take(order[options.offset : last])
    start = min(options.offset, len(rows))
    found = Found(
        rows=ranking.rows,
        match=ranking.match,
        start=start,
        page=slice(0, len(ranking.rows)),
        pool=pool,
        candidates=min(ordered.candidates + len(extra), collection.count),
        is_empty=len(rows) == 0,
    )
    return found, RankedPage(ranking, reranked, pool_align, degraded)


def _match(search: ValidSearch, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the cosines of items as the first stage does, less the biases of a correction."""
    if len(rows) == 0:
        return np.empty(0, dtype=np.float32)
    query, collection = search.query.encoding.embedding[0], search.collection
    match = collection.embeddings(rows.tolist()) @ query
    if isinstance(collection, FileCollection) and collection.entry.corrected:
        biases = collection.biases(search.tokens, search.modality, rows)
        match = match - search.embedding[-2] * biases[:, 0]
    return match.astype(np.float32)


def _align(
    search: ValidSearch,
    rows: NDArray[np.int64],
    pool_rows: NDArray[np.int64],
    clock: RerankDeadline,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return the alignment scores of the candidates and of the pool."""
    align = partial(search.collection.align, search.tokens, search.modality)
    count, began = len(rows) + len(pool_rows), time.perf_counter()
    score = clock.guard(align, search.direction, count, search.deadline_s)
    both = score(np.concatenate([rows, pool_rows])) if count else np.empty(0, dtype=np.float32)
    if count:
        clock.observe(search.direction, count, time.perf_counter() - began)
    return both[: len(rows)], both[len(rows) :] if len(pool_rows) else None


def _bonus(
    scores: NDArray[np.float32], rows: NDArray[np.int64], words: FoundWords, weight: float | None
) -> NDArray[np.float32]:
    """Return what the words add to the scores.

    Args:
        scores: Scores by both stages of the first block.
        rows: All rows, those of the first block first.
        words: Items that have words.
        weight: Weight of the words.
    """
    weights = dict(zip(words.rows.tolist(), words.weights.tolist(), strict=True))
    each = np.array([weights.get(row, 0.0) for row in rows.tolist()], dtype=np.float32)
    width = float(scores.max() - scores.min()) if len(scores) else 0.0
    # Items of equal scores are also told apart by their words.
    return each * np.float32((weight or 0.0) * (2 * width + 1e-3))


def _ranks(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the rank of each score, counted from 1."""
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks
