"""Words of the items' own texts: captions, file names and metadata, and the items that have them.

Words are compared without case and accents. Scripts that are written without spaces (Chinese,
Japanese, Thai and others) are divided into pairs of neighbouring characters.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.items.tables import StoredItem

# Thai, Lao, Myanmar and Khmer letters; kana and Han characters.
_WITHOUT_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORDS = re.compile(rf"[{_WITHOUT_SPACES}]+|[^\W_{_WITHOUT_SPACES}]+")
_PAIRED = re.compile(f"[{_WITHOUT_SPACES}]")
_ITEMS_AT_A_TIME = 5_000


class WordMatch(NamedTuple):
    """Words that a field of an item has.

    Attributes:
        words: The words, in the order of the query.
    """

    field: str
    words: list[str]


class FoundWords(NamedTuple):
    """Items that have rare words of a query.

    Attributes:
        words: The words that count, in the order of the query.
        rows: (items,) int64, of those that have most, best first.
        weights: (items,) float32, the sum of what each item's words count.
    """

    words: list[str]
    rows: NDArray[np.int64]
    weights: NDArray[np.float32]


def words_of(text: str) -> list[str]:
    """Return the different words of a text in their order, without case and accents."""
    plain = "".join(
        each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each)
    )
    found: dict[str, None] = {}
    for word in _WORDS.findall(unicodedata.normalize("NFKC", plain).casefold()):
        if len(word) > 1 and _PAIRED.match(word):
            found.update(dict.fromkeys(map("".join, pairwise(word))))
        else:
            found[word] = None
    return list(found)


def texts_of(item: StoredItem) -> Iterator[tuple[str, str]]:
    """Yield the fields of an item that have a text, by the names of `WordMatch`."""
    if item.text:
        yield "text", item.text
    if item.uri:
        yield "uri", PurePosixPath(item.uri).name
    for name, value in item.metadata.items():
        text = " ".join(_strings(value))
        if text:
            yield f"metadata.{name}", text


def _strings(value: object) -> Iterator[str]:
    """Yield the texts of a metadata value, which may be a list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _strings(each)


def matches(item: StoredItem, words: Sequence[str]) -> list[WordMatch]:
    found: list[WordMatch] = []
    for field, text in texts_of(item):
        present = set(words_of(text))
        shared = [word for word in words if word in present]
        if shared:
            found.append(WordMatch(field, shared))
    return found


class WordIndex:
    """The rows that have a word, in memory, read when words are first searched; thread-safe."""

    def __init__(self, read: Callable[[Sequence[int]], list[StoredItem]], start: int = 0) -> None:
        self._read = read
        self._end = start
        self._rows: dict[str, array[int]] = {}
        self._lock = threading.Lock()

    def find(
        self, words: Sequence[str], end: int, most: float, removed: BitMap | None = None
    ) -> list[list[int] | None]:
        """Return for each word the rows below `end` that have it, ascending.

        The first call reads all items, a later one those that have been added. `removed` rows do
        not count; None stands for a word of more than `most` rows. The result does not change.
        """
        with self._lock:
            while self._end < end:
                stop = min(end, self._end + _ITEMS_AT_A_TIME)
                items = self._read(range(self._end, stop))
                for item in sorted(items, key=lambda item: item.row):
                    text = " ".join(text for _, text in texts_of(item))
                    for word in words_of(text):
                        self._rows.setdefault(word, array("q")).append(item.row)
                self._end = stop
            found = [self._rows.get(word, array("q")) for word in words]
            counts = [bisect_left(rows, end) for rows in found]
            # Those of frequent words are not looked at, however many items were removed.
            enough = most + (0 if removed is None else len(removed))
            few = [
                rows[:count] if count <= enough else None
                for rows, count in zip(found, counts, strict=True)
            ]
        left = [
            None if rows is None else [row for row in rows if not removed or row not in removed]
            for rows in few
        ]
        return [None if rows is None or len(rows) > most else rows for rows in left]
