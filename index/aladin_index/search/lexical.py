"""Searches by words as well: items whose own texts have rare words of the query.

A word counts by how rare it is: 1 if one item alone has it, less for more items, and nothing beyond
one in a hundred, since both stages find what is frequent. Items that have counting words join the
candidates and are scored by both stages. What the words add to a score is `lexical`, times the sum
of what they count, times twice the distance of the best score of these items to the worst: with 1,
an item that alone has a word passes all items that have none or one that counts up to a half,
whatever the scores of the model are.

Where the whole query is the name of an item's file, the item is placed before all others whatever
the weight is; then come those whose name it is a part of, if they are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.items.selection import Selection
from aladin_index.items.words import FoundWords, WordIndex, plain_words, words_of

# Items that have a word, at most, for the word to count: a share, and a number for small indexes.
_RARE_SHARE, _RARE_ITEMS = 0.01, 5
# Items that join the candidates, at most.
_MOST_ITEMS = 1000
# Items whose names may have the query as a part: one without digits may be a word that means more.
_MOST_PARTS, _MOST_NUMBERED = 10, 100
# Weight of a text of one word in an index that follows folders, unless the request gives one.
_LIBRARY_WEIGHT = 0.5


def library_weight(text: str) -> float:
    """Return the weight of a text's words in an index that follows folders.

    It falls with the number of words: few words name something, many describe it, and then a rare
    word that an item has by chance must not decide (benchmarks/RESULTS.md).
    """
    return _LIBRARY_WEIGHT / max(len(words_of(text)), 1)


def find_rare_words(
    text: str,
    indexes: Sequence[tuple[WordIndex, int]],
    count: int,
    removed: BitMap | None,
    selection: Selection | None,
) -> FoundWords:
    """Find the items that have rare words of a text.

    Each of `indexes` comes with the row that ends its items; `count` is the number of items that
    are not removed, `removed` rows do not count, and only those of `selection` may be found.
    """
    words, count = words_of(text), max(count, 1)
    most = max(_RARE_SHARE * count, _RARE_ITEMS)
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
    name = plain_words(text)
    levels = _named(name, indexes, removed, selection) if name else {}
    rows = {**sums, **levels}
    best = sorted(rows, key=lambda row: (-levels.get(row, 0), -sums.get(row, 0.0), row))
    best = best[:_MOST_ITEMS]
    return FoundWords(
        words=rare,
        rows=np.array(best, dtype=np.int64),
        weights=np.array([sums.get(row, 0.0) for row in best], dtype=np.float32),
        levels=np.array([levels.get(row, 0) for row in best], dtype=np.float32),
        name=" ".join(name) if levels else "",
    )


def _named(
    name: Sequence[str],
    indexes: Sequence[tuple[WordIndex, int]],
    removed: BitMap | None,
    selection: Selection | None,
) -> dict[int, int]:
    """Return the level of each item whose file has a name, see `FoundWords`."""
    whole: list[int] = []
    part: list[int] = []
    for index, end in indexes:
        found = index.find_names(name, end)
        whole += found.whole
        part += found.part
    levels = dict.fromkeys(part, 1) | dict.fromkeys(whole, 2)
    for row in [*levels]:
        is_gone = removed is not None and row in removed
        if is_gone or not (selection is None or row in selection.bitmap):
            del levels[row]
    has_digits = any(map(str.isdigit, "".join(name)))
    if len(levels) > (_MOST_NUMBERED if has_digits else _MOST_PARTS):
        return {row: level for row, level in levels.items() if level == 2}
    return levels


def words_bonus(
    scores: NDArray[np.float32], rows: NDArray[np.int64], words: FoundWords, weight: float
) -> NDArray[np.float32]:
    """Return what words add to the scores of some rows, given the scores of the first block."""
    # A level is more than all that words can add.
    added = weight * words.weights
    added = added + words.levels * (1 + added.max(initial=0))
    bonus = dict(zip(words.rows.tolist(), added.tolist(), strict=True))
    each = np.array([bonus.get(row, 0.0) for row in rows.tolist()], dtype=np.float32)
    width = float(scores.max() - scores.min()) if len(scores) else 0.0
    # Items of equal scores are also told apart by their words.
    return each * np.float32(2 * width + 1e-3)
