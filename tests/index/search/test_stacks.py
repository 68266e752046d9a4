"""Stacks in searches and lists: each stack is one hit, as by collapsing all hits one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.filters import parse_filter
from aladin_index.search import plan as plan_module
from aladin_index.search.collection import ListOrder
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchAnswer, SearchHit, Stack
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint_files import read_model_id

Batch = ItemBatch[NDArray[np.float32]]
MakeItems = Callable[..., Batch]
PHOTOS = 60


def stack_name(item_id: str) -> str:
    """Every fourth photo is alone; of the others, those of one seventh of the numbers are one."""
    number = int(item_id[1:])
    return item_id if number % 4 == 0 else f"stack {number % 7}"


def named(new: Batch) -> Batch:
    """Photos whose names tell their stacks: edited copies of one photo."""
    items = [
        item._replace(
            uri=f"{item.id}.jpg"
            if stack_name(item.id) == item.id
            else f"{stack_name(item.id)}~{int(item.id[1:]) + 1}.jpg",
            fingerprint=None,
        )
        for item in new.items
    ]
    return replace(new, items=items)


@pytest.fixture(scope="module")
def index(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    write_made_up: Callable[..., int],
    made_up: MakeItems,
) -> Iterator[SearchIndex]:
    """Photos of which some were added, deleted and replaced."""
    root = tmp_path_factory.mktemp("stacks") / "index"
    ids = [f"p{n}" for n in range(PHOTOS)]
    numbers: dict[str, Any] = {"n": [n % 10 for n in range(PHOTOS)]}
    write_made_up(root, images=named(made_up(ids, **numbers)), texts=made_up(["t"]))
    with closing(ChangesWriter(root, read_model_id(tiny_checkpoint))) as writer:
        new = [f"p{n}" for n in (*range(PHOTOS, PHOTOS + 12), 3, 30)]
        more = named(made_up(new, seed=3, n=[n % 10 for n in range(len(new))]))
        writer.add("images", more, "replace")
        writer.delete("images", ["p1", "p2", "p8", f"p{PHOTOS + 1}"])
    with closing(open_index(root)) as opened:
        yield opened


def ask(index: SearchIndex, **options: Any) -> SearchAnswer:
    searcher = TwoStageSearcher(index)
    query = searcher.stored_query("t")._replace(text="a dog", is_stored=False)
    return searcher.search(query, "images", SearchOptions(**options))


def collapsed(hits: list[SearchHit]) -> list[list[SearchHit]]:
    """The reference: hits one by one, each into its stack, in the order of the stacks' first."""
    stacks: dict[str, list[SearchHit]] = {}
    for hit in hits:
        stacks.setdefault(stack_name(hit.id), []).append(hit)
    return [*stacks.values()]


OPTIONS: list[dict[str, Any]] = [
    {"candidates": 100},
    {"candidates": 8},
    {"candidates": 8, "rerank": False},
    {"candidates": "exhaustive"},
    {"candidates": 8, "filter": {"n": {"lt": 4}}},
    {"candidates": 100, "fusion": 0.0, "filter": {"n": 3}},
    {"candidates": 100, "lexical": 1.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("k", "offset"), [(1, 0), (5, 0), (5, 5), (20, 3), (100, 0), (5, 90)])
def test_hits_are_the_best_photos_of_all_stacks(
    index: SearchIndex,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    k: int,
    offset: int,
) -> None:
    monkeypatch.setattr(plan_module, "_FURTHER", 2)
    every = collapsed(ask(index, k=1000, **options).hits)
    answer = ask(index, k=k, offset=offset, stack=True, **options)
    expected = every[offset : offset + k]
    assert [hit.id for hit in answer.hits] == [of_stack[0].id for of_stack in expected]
    for rank, (hit, of_stack) in enumerate(zip(answer.hits, expected, strict=True), offset + 1):
        assert hit.rank == rank
        assert hit.score == pytest.approx(of_stack[0].score, abs=1e-5)
        assert hit.stages.match.score == pytest.approx(of_stack[0].stages.match.score, abs=1e-5)
        if len(of_stack) == 1:
            assert hit.stack is None
        else:
            assert hit.stack is not None
            assert hit.stack.count == len(of_stack) == len(hit.stack.ids)
            assert hit.stack.ids[0] == hit.id
            assert set(hit.stack.ids) == {each.id for each in of_stack}


def test_photos_of_a_stack_are_named_best_first(index: SearchIndex) -> None:
    every = collapsed(ask(index, k=1000).hits)
    answer = ask(index, k=100, stack=True)
    assert [hit.stack.ids for hit in answer.hits if hit.stack] == [
        [each.id for each in of_stack] for of_stack in every if len(of_stack) > 1
    ]
    assert ask(index, k=100).hits[0].stack is None


def test_ranks_of_the_stages_count_all_photos(index: SearchIndex) -> None:
    for options in ({"candidates": 100}, {"candidates": "exhaustive"}, {"rerank": False}):
        alone = {hit.id: hit for hit in ask(index, k=1000, **options).hits}
        for hit in ask(index, k=5, stack=True, **options).hits:
            assert hit.stages.match.rank == alone[hit.id].stages.match.rank
            if options.get("rerank", True):
                assert hit.stages.align is not None
                assert hit.stages.align == alone[hit.id].stages.align


def test_the_photo_of_a_query_is_not_in_the_stacks_of_its_hits(index: SearchIndex) -> None:
    searcher = TwoStageSearcher(index)
    query = searcher.stored_query("p5")
    answer = searcher.search(query, "images", SearchOptions(k=100, stack=True))
    [own] = [hit for hit in answer.hits if stack_name(hit.id) == stack_name("p5")]
    assert own.stack is not None and "p5" not in own.stack.ids
    assert len(own.stack.ids) == own.stack.count > 1


def listed(index: SearchIndex, order: ListOrder, size: int, **filter: Any) -> list[Any]:
    collection, found = index.collection("images", parse_filter(filter)), list[Any]()
    after = None
    while True:
        page = collection.list_items(order, after, size)
        found += zip([item.id for item in page.items], page.stacks, strict=True)
        if page.is_last:
            return found
        after = page.items[-1].id


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("filter", [{}, {"n": {"lt": 4}}], ids=str)
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("field", [None, "n"])
def test_pages_of_a_list_have_the_first_photo_of_each_stack(
    index: SearchIndex, field: str | None, descending: bool, filter: dict[str, Any], size: int
) -> None:
    order = ListOrder(field, descending)
    every = listed(index, order, 1000, **filter)
    assert all(stack is None for _, stack in every)
    stacks: dict[str, list[str]] = {}
    for item_id, _ in every:
        stacks.setdefault(stack_name(item_id), []).append(item_id)
    expected = [
        (ids[0], Stack(count=len(ids), ids=ids) if len(ids) > 1 else None)
        for ids in stacks.values()
    ]
    assert listed(index, order._replace(stack=True), size, **filter) == expected
    total = index.collection("images", parse_filter(filter)).list_items(order, None, 1).total
    assert total == len(every)


def test_texts_are_not_stacked(index: SearchIndex) -> None:
    searcher = TwoStageSearcher(index)
    query = searcher.stored_query("p5")
    answer = searcher.search(query, "texts", SearchOptions(stack=True))
    assert [(hit.id, hit.stack) for hit in answer.hits] == [("t", None)]
    assert np.array_equal(index.collection("texts").stacks().roots, [0])
