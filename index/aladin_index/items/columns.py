"""Metadata fields as sorted columns in memory, and the rows that pass a test as compressed bitmaps.

A column has the values of one kind in a field, in ascending order without repetition, and for each
value the rows of the items that have it. What passes a comparison is a run of values, which binary
search finds, and the run's rows are neighbours:

    values  [2019, 2021, 2024]
    starts  [0, 2, 3, 6]
    rows    [1, 7,   4,   0, 1, 9]

Rows are collected in blocks, each of which is turned into a bitmap at its first use, so that a wide
range takes the union of blocks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.items.filters import (
    And,
    Bound,
    Equal,
    Exists,
    Filter,
    Kind,
    Not,
    Or,
    Test,
    field_scalars,
)
from aladin_index.items.selection import bitmap_of

# Rows of a block. Smaller ranges are collected row by row, which takes 25 ns per row.
_BLOCK = 4096

Value = int | float | str


class Texts(Sequence[bytes]):
    """Sorted texts, in one piece of memory, as UTF-8: its order is that of the code points."""

    def __init__(self, lengths: NDArray[np.uint32], joined: bytes) -> None:
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self._joined = joined
        if (int(self._ends[-1]) if len(lengths) else 0) != len(joined):
            raise ValueError(f"expected texts of {len(joined)} bytes")

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return self._joined[int(self._ends[place - 1]) if place else 0 : int(self._ends[place])]


class Column:
    """The values of one kind in a field, and their rows; immutable and thread-safe.

    Attributes:
        rows: (entries,) uint32, rows of all values, in the order of the values.
    """

    def __init__(
        self,
        values: Sequence[int | float] | Sequence[bytes],
        starts: NDArray[np.int64],
        rows: NDArray[np.uint32],
    ) -> None:
        """Keep ascending values (texts in UTF-8), (values + 1,) borders, and the rows."""
        self._values = values
        self._starts = starts
        self.rows = rows
        self._blocks: dict[int, BitMap] = {}

    def equal(self, values: Iterable[Value]) -> BitMap:
        """Return the rows whose value equals one of `values`."""
        places = {self._place(value, right=False) for value in values if self._has(value)}
        found = [self._between(place, place + 1) for place in places]
        return BitMap.union(*found) if found else BitMap()

    def within(self, bounds: Iterable[Bound]) -> BitMap:
        """Return the rows with a value of this column's kind within all bounds."""
        start, end = 0, len(self._values)
        for comparison, (_, value) in bounds:
            # Of the values up to the bound, gte lets the equal one in, and so does lte.
            place = self._place(value, right=comparison in ("gt", "lte"))
            if comparison in ("gt", "gte"):
                start = max(start, place)
            else:
                end = min(end, place)
        return self._between(start, end)

    def every(self) -> BitMap:
        """Return the rows with any value."""
        return self._between(0, len(self._values))

    def _place(self, value: Value, *, right: bool) -> int:
        wanted = value.encode() if isinstance(value, str) else value
        # Python compares whole numbers with floats exactly, at any size.
        bisect = bisect_right if right else bisect_left
        return bisect(self._values, wanted)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def _has(self, value: Value) -> bool:
        return self._place(value, right=True) > self._place(value, right=False)

    def _between(self, start: int, end: int) -> BitMap:
        """Return the rows of the values from place `start` to `end`."""
        if start >= end:
            return BitMap()
        first, last = int(self._starts[start]), int(self._starts[end])
        inner = range(-(-first // _BLOCK), last // _BLOCK)
        if not inner:
            return bitmap_of(self.rows[first:last])
        ends = self.rows[first : inner.start * _BLOCK], self.rows[inner.stop * _BLOCK : last]
        return BitMap.union(*(self._block(number) for number in inner), *map(bitmap_of, ends))

    def _block(self, number: int) -> BitMap:
        block = self._blocks.get(number)
        if block is None:
            block = bitmap_of(self.rows[number * _BLOCK : (number + 1) * _BLOCK])
            self._blocks[number] = block
        return block


class FieldColumns(NamedTuple):
    """The columns of one field."""

    kinds: Mapping[Kind, Column]
    has_lists: bool

    def passing(self, test: Test) -> BitMap:
        if isinstance(test, Equal):
            found = [
                column.equal([each.value for each in test.values if each.kind == kind])
                for kind, column in self.kinds.items()
            ]
        elif isinstance(test, Exists):
            found = [column.every() for column in self.kinds.values()]
        elif self.has_lists:
            # Each bound may be satisfied by another value of the item.
            return reduce(and_, (self._within([bound]) for bound in test.bounds))
        else:
            return self._within(test.bounds)
        return BitMap.union(*found) if found else BitMap()

    def _within(self, bounds: Sequence[Bound]) -> BitMap:
        kinds: set[Kind] = {bound.value.kind for bound in bounds}
        column = self.kinds.get(kinds.pop())
        # No value is of two kinds.
        return BitMap() if column is None or kinds else column.within(bounds)


class GrowingColumns:
    """The columns of a field of items that are added in the order of their rows.

    Items are read when a filter asks for them. What was added at a time is a part with columns of
    its own, and parts are joined so that each is larger than all after it; an item is read again
    at most as often as the number of items can be halved. Not thread-safe.
    """

    def __init__(self, start: int) -> None:
        self._end = start
        self._parts: list[tuple[range, FieldColumns]] = []

    def passing(
        self, test: Test, end: int, read: Callable[[range], Iterable[tuple[int, object]]]
    ) -> BitMap:
        """Return the rows below `end` that pass a test; `read` gives rows with their values."""
        if end > self._end:
            rows = range(self._end, end)
            while self._parts and len(self._parts[-1][0]) <= len(rows):
                rows = range(self._parts.pop()[0].start, end)
            self._parts.append((rows, build_columns(read(rows))))
            self._end = end
        found = reduce(or_, (columns.passing(test) for _, columns in self._parts), BitMap())
        return found if end == self._end else found & BitMap(range(end))


def combine(filter: Filter, found: Mapping[Test, BitMap], rows: range) -> BitMap:
    """Apply the "and", "or" and "not" of a filter to the rows that pass its tests."""
    if isinstance(filter, Not):
        return BitMap(rows) - combine(filter.part, found, rows)
    if isinstance(filter, And):
        return reduce(and_, (combine(part, found, rows) for part in filter.parts))
    if isinstance(filter, Or):
        return reduce(or_, (combine(part, found, rows) for part in filter.parts))
    return found[filter]


def build_columns(items: Iterable[tuple[int, object]]) -> FieldColumns:
    of_kind: dict[Kind, list[tuple[Value, int]]] = {}
    has_lists = False
    for row, value in items:
        scalars = list(field_scalars(value))
        has_lists = has_lists or len(scalars) > 1
        for kind, stored in scalars:
            of_kind.setdefault(kind, []).append((stored, row))
    kinds: dict[Kind, Column] = {
        kind: _column(sorted(set(lines))) for kind, lines in of_kind.items()
    }
    return FieldColumns(kinds, has_lists)


def _column(lines: list[tuple[Value, int]]) -> Column:
    """Build a column from values and rows in ascending order."""
    values: list[Value] = []
    starts: list[int] = []
    for place, (value, _) in enumerate(lines):
        if not values or values[-1] != value:
            values.append(value)
            starts.append(place)
    rows = np.array([row for _, row in lines], dtype=np.uint32)
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return Column(encoded, np.array([*starts, len(lines)], dtype=np.int64), rows)  # pyright: ignore[reportArgumentType]
