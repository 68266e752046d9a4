"""The items of a collection without a query: sorted by a field, or in the order of their addition.

A page continues after the last item of the page before, wherever items were added or deleted
meanwhile: nothing is shown twice, and a page costs the same however far from the start it is.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from pyroaring import BitMap

from aladin_index.changes.reader import CollectionChanges, LiveItems
from aladin_index.items.field_tables import (
    MAX_VALUES,
    FieldLine,
    FieldValues,
    ValuesEnd,
    merge_values,
)
from aladin_index.items.filters import (
    KIND_CODES,
    Equal,
    Exists,
    Filter,
    Kind,
    Scalar,
    field_scalars,
    without_field,
)
from aladin_index.items.selection import Selection
from aladin_index.items.stacks import Stacks
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem
from aladin_index.items.words import plain_words
from aladin_index.search.collection import ListedPage, ListOrder
from aladin_index.search.results import Stack
from aladin_index.search.word_filters import PLACE_FIELDS, TAKEN_AT, KnownValues
from aladin_network.errors import InputError, UnknownItemError, brief
from aladin_network.types import Target

# Items read at once while those of a page are looked for.
_BATCH = 200
# Values of a field of places that words may name, at most.
_MOST_NAMED = 20_000
_YEAR = re.compile(r"\d{4}", re.ASCII)


class Listed(NamedTuple):
    """What a listing reads of a collection in files.

    Attributes:
        target: Target of the collection.
        fields: Fields that are indexed for filters, or None for all.
        stored: Items of the generation.
        changes: Changes since it was built, or None.
        items: Items of both.
        rows: Number of all rows, including removed ones.
        total: Number of items that pass the filter.
        selection: Rows that pass the filter, or None if all do.
        select: Returns the rows that pass another filter, or None if all do.
        find_stacks: Returns the stacks of those that pass.
        filter: The filter.
    """

    target: Target
    fields: Sequence[str] | None
    stored: ItemStore
    changes: CollectionChanges | None
    items: ItemStore | LiveItems
    rows: int
    total: int
    selection: Selection | None
    select: Callable[[Filter | None], Selection | None]
    find_stacks: Callable[[], Stacks]
    filter: Filter | None = None


class _FieldReader(Protocol):
    """A database of items: that of a generation, or that of additions."""

    def field_lines(
        self, name: str, after: FieldLine | None, *, descending: bool
    ) -> list[FieldLine]: ...

    def count_values(
        self, name: str, kind: Kind, most: int, end: ValuesEnd
    ) -> Counter[int | float | str]: ...


class NamedValues:
    """What words may name in a collection, read when they are first asked for; thread-safe."""

    def __init__(self) -> None:
        self._stored: KnownValues | None = None
        self._added: tuple[int, KnownValues] = (0, KnownValues(range(0), {}))

    def get(self, stored: ItemStore, changes: CollectionChanges | None) -> KnownValues:
        """Return the values of a generation, which never change, and of what was added."""
        if self._stored is None:
            self._stored = _known_values(stored)
        if changes is None:
            return self._stored
        rows, added = self._added
        if rows != changes.rows:
            added = _known_values(changes.added)
            self._added = changes.rows, added
        return self._stored.joined(added)


def _known_values(reader: _FieldReader) -> KnownValues:
    places: dict[str, tuple[str, str]] = {}
    for name in PLACE_FIELDS:
        for value in reader.count_values(name, "text", _MOST_NAMED, "least"):
            words = " ".join(plain_words(str(value)))
            if words:
                places.setdefault(words, (name, str(value)))
    ends: tuple[ValuesEnd, ...] = ("least", "greatest")
    dates = [date for end in ends for date in reader.count_values(TAKEN_AT, "text", 1, end)]
    years = [int(str(date)[:4]) for date in dates if _YEAR.match(str(date))]
    return KnownValues(range(min(years), max(years) + 1) if years else range(0), places)


def list_items(live: Listed, order: ListOrder, after_id: str | None, count: int) -> ListedPage:
    """List items of a collection in files, see `Collection.list_items`."""
    if order.field is not None:
        _check_indexed(live, order.field)
    after = None if after_id is None else _find(live, after_id)
    # One more than wanted tells whether another page follows.
    walk = _walk(live, order, after)
    tiles = _first_of_stacks(live, order, walk) if order.stack else ((each, None) for each in walk)
    found = list(islice(tiles, count + 1))
    items = [item for item, _ in found[:count]]
    stacks = [stack for _, stack in found[:count]]
    return ListedPage(items, live.total, is_last=len(found) <= count, stacks=stacks)


def _first_of_stacks(
    live: Listed, order: ListOrder, items: Iterator[StoredItem]
) -> Iterator[tuple[StoredItem, Stack | None]]:
    """Leave out the items whose stack has one that comes before, on this page or another."""
    stacks, known = live.find_stacks(), dict[int, list[StoredItem]]()
    for item in items:
        root = int(stacks.roots[item.row])
        if root not in known:
            rows = stacks.of(item.row)
            of_stack = live.items.by_rows(rows) if len(rows) > 1 else [item]
            known[root] = _in_order(of_stack, order)
        first, *others = known[root]
        if first.row == item.row:
            ids = [each.id for each in known[root]]
            yield item, Stack(count=len(ids), ids=ids) if others else None


def _in_order(items: Sequence[StoredItem], order: ListOrder) -> list[StoredItem]:
    """Return some items as `_walk` would."""
    named = order.field is not None
    lines = [(_first_line(item, order) if named else None, item) for item in items]
    having = [(line, item) for line, item in lines if line is not None]
    having.sort(key=lambda pair: pair[0], reverse=order.descending)
    others = [item for line, item in lines if line is None]
    others.sort(key=lambda item: item.row, reverse=order.descending)
    return [item for _, item in having] + others


def list_fields(live: Listed) -> dict[str, list[FieldValues]]:
    """Describe the fields of a collection in files, see `Collection.list_fields`."""
    fields = _all_fields(live)
    if live.filter is None:
        return fields
    found: dict[Filter | None, BitMap | None] = {}
    for name, kinds in fields.items():
        others = without_field(live.filter, name)
        if others not in found:
            selection = None if others is None else live.select(others)
            found[others] = None if selection is None else selection.bitmap
        rows = found[others]
        if rows is not None:
            fields[name] = [_within(live, name, values, rows) for values in kinds]
    return fields


def _within(live: Listed, name: str, values: FieldValues, rows: BitMap) -> FieldValues:
    """Count the same values among some rows."""
    if not values.counts:
        return values
    tests = [Equal(name, (Scalar(values.kind, value),)) for value in values.counts]
    counts, changes = live.stored.count_among(tests, rows), live.changes
    if changes is not None and len(changes.embeddings):
        added = (changes.added.passing(test, len(changes.embeddings)) for test in tests)
        more = (of_test.intersection_cardinality(rows) for of_test in added)
        counts = [built + new for built, new in zip(counts, more, strict=True)]
    return replace(values, counts=dict(zip(values.counts, counts, strict=True)))


def _all_fields(live: Listed) -> dict[str, list[FieldValues]]:
    fields = dict(live.stored.fields)
    changes = live.changes
    if changes is None:
        return fields
    for name, values in changes.added.describe_fields().items():
        fields[name] = merge_values(fields.get(name, []), values)
    gone: dict[tuple[str, Kind], Counter[int | float | str]] = defaultdict(Counter)
    removed: list[int] = changes.removed.tolist()
    for start in range(0, len(removed), _BATCH):
        for item in live.items.by_rows(removed[start : start + _BATCH]):
            for name, value in item.metadata.items():
                for kind, each in set(field_scalars(value)):
                    gone[name, kind][each] += 1
    readers: list[_FieldReader] = [live.stored, changes.added]
    for name, values in fields.items():
        left = [_without(readers, name, each, gone.get((name, each.kind))) for each in values]
        fields[name] = [each for each in left if each is not None]
    return {name: values for name, values in fields.items() if values}


def _without(
    readers: Sequence[_FieldReader],
    name: str,
    values: FieldValues,
    gone: Counter[int | float | str] | None,
) -> FieldValues | None:
    """Subtract the values of deleted items; return None if none is left."""
    if gone is None:
        return values
    if values.counts is not None:
        first = last = Counter(values.counts) - gone
    else:
        # So many that the values of deleted items cannot be all of those that are read.
        most = MAX_VALUES + 1 + len(gone)
        first, last = (
            sum(
                (reader.count_values(name, values.kind, most, end) for reader in readers), Counter()
            )
            - gone
            for end in ("least", "greatest")
        )
    if not first:
        return None
    counts = dict(sorted(first.items())) if len(first) <= MAX_VALUES else None
    return FieldValues(kind=values.kind, least=min(first), greatest=max(last), counts=counts)


def _check_indexed(live: Listed, field: str) -> None:
    indexed = live.fields
    if indexed is not None and field not in indexed:
        known = ", ".join(indexed) or "none"
        raise InputError(
            f"sort: expected a field that is indexed for filters, got {brief(field)};"
            f" indexed are: {known}"
        )


def _find(live: Listed, item_id: str) -> StoredItem:
    """Return an item, or the last one that had this id."""
    item = live.items.by_id(item_id)
    if item is None and live.changes is not None:
        added = live.changes.added.items_by_id(item_id)
        item = added[-1] if added else live.stored.by_id(item_id)
    if item is None:
        raise UnknownItemError(live.target, item_id)
    return item


def _walk(live: Listed, order: ListOrder, after: StoredItem | None) -> Iterator[StoredItem]:
    """Yield all items from one on."""
    if order.field is not None:
        start = None if after is None else _first_line(after, order)
        if after is None or start is not None:
            yield from _with_value(live, order, start)
            after = None
    yield from _by_row(live, order, after)


def _with_value(live: Listed, order: ListOrder, start: FieldLine | None) -> Iterator[StoredItem]:
    """Yield the items that have a value in the field, sorted by it."""
    readers: list[_FieldReader] = [live.stored]
    if live.changes is not None:
        readers.append(live.changes.added)
    merged = heapq.merge(
        *(_lines(reader, order, start) for reader in readers), reverse=order.descending
    )
    selection, rows = live.selection, live.rows
    listed = (
        line
        for line in merged
        # A line of an item that was added after this snapshot has a row beyond it.
        if line.row < rows and (selection is None or line.row in selection.bitmap)
    )
    while batch := list(islice(listed, _BATCH)):
        items = live.items.by_rows([line.row for line in batch])
        for line, item in zip(batch, items, strict=True):
            # An item with a list of values has a line for each of them.
            if line == _first_line(item, order):
                yield item


def _lines(reader: _FieldReader, order: ListOrder, after: FieldLine | None) -> Iterator[FieldLine]:
    assert order.field is not None  # the caller sorts by it
    while lines := reader.field_lines(order.field, after, descending=order.descending):
        yield from lines
        after = lines[-1]


def _first_line(item: StoredItem, order: ListOrder) -> FieldLine | None:
    """Return the first of an item's lines in the order, or None if it has none."""
    lines = [
        FieldLine(KIND_CODES[each.kind], each.value, item.row)
        for each in field_scalars(item.metadata.get(order.field or ""))
    ]
    if not lines:
        return None
    return max(lines) if order.descending else min(lines)


def _by_row(live: Listed, order: ListOrder, after: StoredItem | None) -> Iterator[StoredItem]:
    """Yield the items in the order of their addition; only those without a value in the field."""
    mask = np.ones(live.rows, dtype=np.bool_)
    if live.selection is not None:
        mask &= live.selection.mask
    if order.field is not None:
        having = live.select(Exists(order.field))
        assert having is not None  # there is a filter
        mask &= ~having.mask
    found = np.flatnonzero(mask)
    if order.descending:
        found = found[::-1]
    if after is not None:
        found = found[found < after.row] if order.descending else found[found > after.row]
    for start in range(0, len(found), _BATCH):
        batch: list[int] = found[start : start + _BATCH].tolist()
        yield from live.items.by_rows(batch)
