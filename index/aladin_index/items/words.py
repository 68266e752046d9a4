"""Words of the items' own texts: captions, file names and metadata, and the items that have them.

Words are compared without case and accents. Scripts that are written without spaces (Chinese,
Japanese, Thai and others) are divided into pairs of neighbouring characters.

Names of files are also kept whole, so that one is found by a part of it: the names of some thousand
items are one text, a name a line, with a tab before the suffix, which is searched as a whole.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
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
# Letters and digits of the shortest part of a name that is looked for.
_LEAST_PART = 5
# Names that are found, at most: a part of more of them tells nothing.
_MOST_NAMES = 1_000


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
        levels: (items,) float32, 2 where the query is the name of the item's file, 1 where it is a
            part of it, else 0.
        name: The query as a name, if an item has a level, else empty.
    """

    words: list[str]
    rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    levels: NDArray[np.float32]
    name: str = ""


class NamedRows(NamedTuple):
    """Rows of items whose file has a name: the whole name, or a part of it."""

    whole: list[int]
    part: list[int]


class _Names(NamedTuple):
    """Names of the files of some items.

    Attributes:
        text: A line for each.
        starts: Place of the line break before each line.
        rows: Row of each.
    """

    text: str
    starts: array[int]
    rows: array[int]

    def having(self, piece: str) -> Iterator[int]:
        """Yield the numbers of the lines that have a piece."""
        place = self.text.find(piece)
        while place >= 0:
            after = bisect_right(self.starts, place)
            yield after - 1
            place = self.text.find(piece, self.starts[after]) if after < len(self.starts) else -1


def plain_words(text: str) -> list[str]:
    """Return the runs of letters and digits of a text, without case and accents."""
    if not text.isascii():  # of which nothing is composed
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(each for each in decomposed if not unicodedata.combining(each))
        text = unicodedata.normalize("NFKC", text)
    return _WORDS.findall(text.casefold())


def words_of(text: str) -> list[str]:
    """Return the different words of a text in their order, without case and accents."""
    words = plain_words(text)
    if text.isascii():
        return list(dict.fromkeys(words))
    found: dict[str, None] = {}
    for word in words:
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
        yield "uri", _file_name(item.uri)
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


def _file_name(uri: str) -> str:
    return uri.rpartition("/")[2]  # a path object takes ten times as long


def _name_line(item: StoredItem) -> str:
    """Return the name of an item's file as a line of `_Names`."""
    name = _file_name(item.uri or "")
    stem, _, suffix = name.rpartition(".")
    if not stem:
        stem, suffix = name, ""
    return f"{' '.join(plain_words(stem))}\t{' '.join(plain_words(suffix))}"


def matches(item: StoredItem, words: Sequence[str], name: str = "") -> list[WordMatch]:
    """Return the fields that have words; that of the file's name also if `name` is in it."""
    found: list[WordMatch] = []
    for field, text in texts_of(item):
        present = set(words_of(text))
        shared = [word for word in words if word in present]
        if field == "uri" and name and name in _name_line(item).replace("\t", " "):
            own = name.split()
            shared = [name, *(word for word in shared if word not in own)]
        if shared:
            found.append(WordMatch(field, shared))
    return found


class WordIndex:
    """The rows that have a word, in memory, read when words are first searched; thread-safe."""

    def __init__(self, read: Callable[[Sequence[int]], list[StoredItem]], start: int = 0) -> None:
        self._read = read
        self._end = start
        self._rows: dict[str, array[int]] = {}
        self._names: list[_Names] = []
        self._suffixes: set[str] = set()
        self._longest = 0
        self._lock = threading.Lock()

    def find(
        self, words: Sequence[str], end: int, most: float, removed: BitMap | None = None
    ) -> list[list[int] | None]:
        """Return for each word the rows below `end` that have it, ascending.

        The first call reads all items, a later one those that have been added. `removed` rows do
        not count; None stands for a word of more than `most` rows. The result does not change.
        """
        with self._lock:
            self._read_up_to(end)
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

    def find_names(self, words: Sequence[str], end: int) -> NamedRows:
        """Return the rows below `end` whose file has a name, or a name with a part, in any order.

        Args:
            words: The name or the part, as `plain_words`; the suffix may be missing.
            end: Row that ends the items.
        """
        with self._lock:
            self._read_up_to(end)
            names, has_suffix = [*self._names], bool(words) and words[-1] in self._suffixes
        key = " ".join(words)
        with_suffix = f"{' '.join(words[:-1])}\t{words[-1]}" if has_suffix else key
        starts = (f"\n{key}\t", f"\n{with_suffix}\n")
        is_long = sum(map(len, words)) >= _LEAST_PART
        pieces = {key, with_suffix} if is_long else {*starts}
        whole, part = set[int](), set[int]()
        if len(key) > self._longest:  # as captions are
            names = []
        for each in names:
            for line in (line for piece in pieces for line in each.having(piece)):
                is_whole = each.text.startswith(starts, each.starts[line])
                (whole if is_whole else part).add(each.rows[line])
            if len(part) > _MOST_NAMES:
                pieces, part = {*starts}, set[int]()
        return NamedRows(*(sorted(row for row in rows if row < end) for rows in (whole, part)))

    def _read_up_to(self, end: int) -> None:
        while self._end < end:
            stop = min(end, self._end + _ITEMS_AT_A_TIME)
            items = sorted(self._read(range(self._end, stop)), key=lambda item: item.row)
            for item in items:
                text = " ".join(text for _, text in texts_of(item))
                for word in words_of(text):
                    self._rows.setdefault(word, array("q")).append(item.row)
            lines = [f"\n{_name_line(item)}" for item in items]
            self._longest = max(self._longest, *map(len, lines))
            self._suffixes.update(line.rpartition("\t")[2] for line in lines)
            starts = array("q", accumulate(map(len, lines[:-1]), initial=0))
            rows = array("q", (item.row for item in items))
            self._names.append(_Names("".join([*lines, "\n"]), starts, rows))
            self._end = stop
