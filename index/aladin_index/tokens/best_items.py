"""The exact best items by their upper bounds: items are scored until no other can be among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Items that are scored before the bounds are compared with a score, and between later comparisons.
_FIRST_BLOCK, _LATER_BLOCK = 64, 512


class ScoredItems(NamedTuple):
    """Items that were scored in full.

    Attributes:
        rows: (scored,) int64, in no order.
        keys: (scored,) float32, what `score` returned for them.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.float32]


def score_best(
    upper: NDArray[np.float32],
    score: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    count: int,
) -> ScoredItems:
    """Score the items that can be among the best, in the order of their bounds.

    Args:
        upper: (items,) bounds; minus infinity excludes an item.
        score: Returns the scores of some items; none is above its bound.
        count: Number of items wanted.

    Returns:
        Every item whose score is at least that of the item of rank `count`, those of equal score
        included, and some others.
    """
    rest = np.flatnonzero(upper > -np.inf)
    rows: list[NDArray[np.int64]] = []
    keys: list[NDArray[np.float32]] = []
    best = np.empty(0, dtype=np.float32)  # the `count` largest scores so far
    block = max(_FIRST_BLOCK, 2 * count)
    while len(rest):
        chosen = rest
        if len(rest) > block:
            places = np.argpartition(-upper[rest], block)
            chosen, rest = rest[places[:block]], rest[places[block:]]
        else:
            rest = rest[:0]
        rows.append(chosen)
        keys.append(score(chosen))
        best = np.concatenate([best, keys[-1]])
        if len(best) >= count:
            best = -np.partition(-best, count - 1)[:count] if count else best[:0]
            rest = rest[upper[rest] >= (best.min() if count else np.inf)]
        block = _LATER_BLOCK
    if not rows:
        return ScoredItems(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
    return ScoredItems(np.concatenate(rows), np.concatenate(keys))
