"""Lists of a living index against a sort of all its items, sorted hits, and values of fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aladin_index.items.field_tables as field_tables
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.engines.engine_index import EngineCollection
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.field_tables import FieldValues
from aladin_index.items.filters import parse_filter
from aladin_index.search import listing
from aladin_index.search.answer import in_order
from aladin_index.search.collection import ListOrder
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import InputError, UnknownItemError
from tests.index.searching import bare_hit

MakeItems = Callable[..., ItemBatch]

# What is in the field "x" of the items: texts, numbers, a bool, lists, and nothing to compare.
VALUES: list[Any] = ["2021-05-01", "2020-01-31", 3, 2.5, True, ["b", "a"], [7, 1], None, {}, "a"]


@pytest.fixture
def living(
    tmp_path: Path,
    tiny_checkpoint: Path,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
) -> Iterator[tuple[SearchIndex, dict[str, Any]]]:
    """An index of 40 items, of which some were deleted, replaced and added; values by id.

    The values are in the order in which the items were added.
    """
    random = np.random.default_rng(5)
    root = tmp_path / "index"

    def some(ids: list[str], seed: int) -> tuple[ItemBatch, dict[str, Any]]:
        values = [VALUES[place] for place in random.integers(0, len(VALUES), len(ids))]
        return made_up(ids, seed=seed, x=values), dict(zip(ids, values, strict=True))

    new, items = some([f"i{n}" for n in range(40)], 0)
    write_made_up(root, images=new)
    with closing(ChangesWriter(root, load_checkpoint(tiny_checkpoint).model_id)) as writer:
        new, added = some(["a1", "a2", "i3", "i17", "a3", "a4"], 1)
        writer.add("images", new, "replace")
        for item_id, value in added.items():
            items.pop(item_id, None)
            items[item_id] = value
        gone = ["i0", "i39", "a2", "i20"]
        writer.delete("images", gone)
        for item_id in gone:
            del items[item_id]
    with open_index(root) as index:
        yield index, items


def key(value: Any, *, descending: bool) -> tuple[int, Any] | None:
    """What a value is sorted by: kinds are numbers, texts and bools; None: not comparable."""
    kinds = {int: 0, float: 0, str: 1, bool: 2}
    values = value if isinstance(value, list) else [value]
    keys = [(kinds[type(each)], each) for each in values if type(each) in kinds]
    return None if not keys else (max if descending else min)(keys)


def sorted_ids(items: dict[str, Any], *, descending: bool) -> list[str]:
    """The reference: all items with a value in their order, then the others."""
    keys = {item_id: key(value, descending=descending) for item_id, value in items.items()}
    having = [item_id for item_id in items if keys[item_id] is not None]
    having.sort(key=lambda item_id: keys[item_id] or ())  # stable: by addition if equal
    lacking = [item_id for item_id in items if keys[item_id] is None]
    return [*having[::-1], *lacking[::-1]] if descending else [*having, *lacking]


def pages(index: SearchIndex, order: ListOrder, size: int, **filter: Any) -> list[str]:
    """All pages, joined."""
    collection = index.collection("images", parse_filter(filter))
    ids: list[str] = []
    after = None
    while True:
        page = collection.list_items(order, after, size)
        assert len(page.items) <= size
        ids += [item.id for item in page.items]
        if page.is_last:
            assert page.total == len(ids)
            return ids
        after = ids[-1]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_pages_are_those_of_a_sorted_list(
    living: tuple[SearchIndex, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    descending: bool,
) -> None:
    index, items = living
    monkeypatch.setattr(field_tables, "_LINES_AT_A_TIME", 3)
    monkeypatch.setattr(listing, "_BATCH", 4)
    by_addition = list(reversed(items) if descending else items)
    assert pages(index, ListOrder(None, descending), size) == by_addition
    expected = sorted_ids(items, descending=descending)
    assert pages(index, ListOrder("x", descending), size) == expected
    assert pages(index, ListOrder("y", descending), size) == by_addition  # a field of none
    texts = ["2021-05-01", "2020-01-31", "a", "b"]  # those from "2" on
    passing = {
        item_id
        for item_id, value in items.items()
        if any(each in texts for each in (value if isinstance(value, list) else [value]))
    }
    found = pages(index, ListOrder("x", descending), size, x={"gte": "2"})
    assert found == [item_id for item_id in expected if item_id in passing]


def test_a_page_continues_after_an_item_that_was_deleted(
    living: tuple[SearchIndex, dict[str, Any]],
) -> None:
    index, items = living
    collection = index.collection("images")
    assert [item.id for item in collection.list_items(ListOrder(), "a2", 2).items] == ["a1", "i38"]
    assert "i39" not in items
    assert collection.list_items(ListOrder(), "i39", 1).items[0].id == "i38"
    with pytest.raises(UnknownItemError, match="nobody"):
        collection.list_items(ListOrder(), "nobody", 1)


def test_fields_are_described_by_what_is_there(
    living: tuple[SearchIndex, dict[str, Any]],
) -> None:
    index, items = living
    counts: dict[str, Counter[Any]] = {"number": Counter(), "text": Counter(), "bool": Counter()}
    for value in items.values():
        for each in value if isinstance(value, list) else [value]:
            kind = {int: "number", float: "number", str: "text", bool: "bool"}.get(type(each))
            if kind:
                counts[kind][each] += 1
    (values,) = index.collection("images").list_fields().values()
    assert {each.kind: each.counts for each in values} == {
        kind: dict(found) for kind, found in counts.items() if found
    }
    by_kind = {each.kind: each for each in values}
    assert (by_kind["number"].least, by_kind["number"].greatest) == (1, 7)
    assert (by_kind["text"].least, by_kind["text"].greatest) == ("2020-01-31", "b")


@pytest.mark.parametrize(
    ("filter", "passes"),
    [
        ({"y": 0}, lambda y: y == 0),
        ({"y": {"gte": 1}, "x": ["a", 3]}, lambda y: y >= 1),  # but for what it says of "x"
        ({"y": 7}, lambda y: False),  # noqa: ARG005
        ({"x": ["a"]}, lambda y: True),  # noqa: ARG005
    ],
)
@pytest.mark.parametrize("has_columns", [True, False])
def test_values_are_counted_among_items_that_pass_the_other_conditions(
    tmp_path: Path,
    tiny_checkpoint: Path,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    has_columns: bool,
    filter: dict[str, Any],
    passes: Callable[[int], bool],
) -> None:
    if not has_columns:
        monkeypatch.setattr("aladin_index.items.store._COLUMNS_BYTES", 0)
    items = {f"i{n}": (VALUES[7 * n % len(VALUES)], n % 3) for n in range(30)}

    def of(ids: list[str], seed: int) -> ItemBatch:
        values = [items[each] for each in ids]
        return made_up(ids, seed=seed, x=[x for x, _ in values], y=[y for _, y in values])

    write_made_up(tmp_path / "index", images=of(list(items), 0))
    with closing(
        ChangesWriter(tmp_path / "index", load_checkpoint(tiny_checkpoint).model_id)
    ) as to:
        items |= {"new": ("a", 0), "i4": ("c", 1), "gone": ("a", 0)}
        to.add("images", of(["new", "i4", "gone"], 1), "replace")
        to.delete("images", ["i0", "gone"])
    del items["i0"], items["gone"]
    scalars = {
        n: [each for each in (x if isinstance(x, list) else [x]) if each != {}]
        for n, (x, _) in items.items()
    }
    expected = Counter(
        (type(each), each) for n, (_, y) in items.items() if passes(y) for each in scalars[n]
    )
    with open_index(tmp_path / "index") as index:
        all_fields = index.collection("images").list_fields()
        fields = index.collection("images", parse_filter(filter)).list_fields()
    assert fields.keys() == all_fields.keys() == {"x", "y"}
    for found, of_all in zip(fields["x"], all_fields["x"], strict=True):
        assert found.counts is not None and of_all.counts is not None
        assert found.counts.keys() == of_all.counts.keys()  # those of no item, too
        for value, count in found.counts.items():
            written = found.as_written(value)
            assert count == expected[type(written), written]
    # Of "y" itself, only what the filter says of "x" counts.
    wanted = filter.get("x")
    with_x = [y for n, (_, y) in items.items() if wanted is None or set(scalars[n]) & {*wanted}]
    assert fields["y"][0].counts == {y: with_x.count(y) for y in range(3)}


def test_many_values_are_described_by_their_range(
    tmp_path: Path, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    ids = [f"i{n}" for n in range(60)]
    write_made_up(tmp_path / "index", images=made_up(ids, n=list(range(60)), few=[1, 2] * 30))
    with open_index(tmp_path / "index") as index:
        assert index.collection("images").list_fields() == {
            "few": [FieldValues(kind="number", least=1, greatest=2, counts={1: 30, 2: 30})],
            "n": [FieldValues(kind="number", least=0, greatest=59, counts=None)],
        }


def test_a_field_without_an_index_and_an_engine_are_refused(search_index: SearchIndex) -> None:
    collection = search_index.collection("images")
    declared = replace(collection.entry, filter_fields=["year"])
    collection = replace(collection, base=replace(collection.base, entry=declared))
    with pytest.raises(InputError, match="'taken_at'; indexed are: year"):
        collection.list_items(ListOrder("taken_at"), None, 1)
    engine = EngineCollection.__new__(EngineCollection)
    with pytest.raises(InputError, match="vector database"):
        engine.list_items(ListOrder(), None, 1)


def sorted_ranks(sort: str, *values: Any) -> list[int]:
    """Ranks of hits with these values of the field "x", as they are ordered."""
    hits = [
        bare_hit(rank, 1 / rank, **({} if value is ... else {"x": value}))
        for rank, value in enumerate(values, 1)
    ]
    return [each.rank for each in in_order(hits, sort)]


@pytest.mark.parametrize(
    ("values", "rising", "falling"),
    [
        ([3, 1.5, 2], [2, 3, 1], [1, 3, 2]),
        (["2024-07-31T18:05:09", "2023-12-31", "2024-07-31"], [2, 3, 1], [1, 3, 2]),
        (["b", "B", "ä"], [2, 1, 3], [3, 1, 2]),
        ([2**53 + 1, 2**53, 2.0**53 + 2], [2, 1, 3], [3, 1, 2]),
        # Hits without a value come last, and equal ones keep their order.
        ([..., 2, None, 1, {}, 2, []], [4, 2, 6, 1, 3, 5, 7], [2, 6, 4, 1, 3, 5, 7]),
        # Kinds are not compared with each other.
        (["1", 5, True, "0", False], [2, 4, 1, 5, 3], [3, 5, 1, 4, 2]),
        # Of a list counts the value that comes first.
        ([[5, 9], [7, 1], 8], [2, 1, 3], [1, 3, 2]),
    ],
)
def test_hits_are_sorted_by_a_field_both_ways(
    values: list[Any], rising: list[int], falling: list[int]
) -> None:
    assert (sorted_ranks("x", *values), sorted_ranks("-x", *values)) == (rising, falling)
