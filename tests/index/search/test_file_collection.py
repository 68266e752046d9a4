"""A living index against a slow model of it: a dict of items, and a look at every one of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.format.layout import live_generation
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import DuplicateItemError, UnknownItemError
from tests.index.contract_items import Known, KnownItems, made_up_query
from tests.index.search.conftest import MakeItems
from tests.index.search.reference import Reference


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


def as_known(new: ItemBatch) -> KnownItems:
    tokens = np.split(new.tokens, np.cumsum(new.lengths)[:-1])
    each = zip(new.items, new.embeddings, tokens, strict=True)
    return {item.id: Known(item, embedding, of) for item, embedding, of in each}


def check(index: SearchIndex, items: KnownItems, random: np.random.Generator) -> None:
    """Compare an open index with the model: what is stored, look-ups, searches."""
    searcher = TwoStageSearcher(index)
    reference, collection = Reference(searcher, None), index.collection("images")
    assert index.images is not None
    codec = index.images.tokens.codec
    assert collection.count == len(items)
    assert {each.item.id for each in reference.items["images"]} == items.keys()
    for each in reference.items["images"]:
        kept = items[each.item.id]
        assert (each.item.text, each.item.metadata) == (kept.item.text, kept.item.metadata)
        np.testing.assert_array_equal(each.embedding, kept.embedding)
        np.testing.assert_array_equal(each.tokens, codec.unpack(codec.pack(kept.tokens)))
        assert collection.items.by_id(each.item.id) == each.item
    query = (Term(made_up_query(random), "text"),)
    passing = {"n": {"gte": int(random.integers(0, 10))}}
    for k, block, filter in ((99, 5, {}), (99, 99, {}), (6, 7, passing), (99, 7, passing)):
        options = SearchOptions(k=k, candidates=block, filter=filter)
        found = [(hit.id, hit.score) for hit in searcher.search(query, "images", options).hits]
        expected = reference.answer(query, "images", options).hits
        assert found == [(hit.id, pytest.approx(hit.score, abs=1e-4)) for hit in expected]


def change(
    writer: ChangesWriter,
    items: KnownItems,
    made_up: MakeItems,
    random: np.random.Generator,
    step: int,
) -> KnownItems:
    """Do something at random to the index, and return what the model has then."""
    free = [f"i{n}" for n in range(60) if f"i{n}" not in items]
    there = random.choice(sorted(items), min(3, len(items) - 1), replace=False).tolist()
    fresh = random.choice(free, 3, replace=False).tolist()
    numbers = random.integers(0, 10, 5).tolist()
    kind = random.choice(["add", "replace", "skip", "delete", "refused", "unknown"])
    if kind == "add":
        new = made_up(fresh, seed=step, n=numbers)
        assert writer.add("images", new, "error").ids["added"] == fresh
        return items | as_known(new)
    if kind in ("replace", "skip"):
        ids = [fresh[0], *there[:2], fresh[1]]
        new = made_up(ids, seed=step, n=numbers)
        report = writer.add("images", new, kind)
        assert report.ids["added"] == fresh[:2]
        assert (report.ids["replaced"] if kind == "replace" else report.ids["kept"]) == there[:2]
        return items | as_known(new) if kind == "replace" else as_known(new) | items
    if kind == "delete":
        assert writer.delete("images", there).deleted == there
        return {item_id: item for item_id, item in items.items() if item_id not in there}
    if kind == "refused":
        with pytest.raises(DuplicateItemError, match=f"'{there[0]}'"):
            writer.add("images", made_up([*fresh, there[0]], seed=step, n=numbers), "error")
        return items
    with pytest.raises(UnknownItemError, match=f"'{fresh[0]}'"):
        writer.delete("images", [there[0], fresh[0]])
    return items


@pytest.mark.parametrize(
    ("seed", "dtype"), [(0, "float16"), (1, "int8"), (2, "4bit"), (3, "float16")]
)
def test_random_changes_leave_what_a_dict_of_items_has(
    tmp_path: Path,
    checkpoint: Checkpoint,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
    seed: int,
    dtype: str,
) -> None:
    random = np.random.default_rng(seed)
    root = tmp_path / "index"
    base = made_up([f"i{n}" for n in range(20)], n=[n % 10 for n in range(20)])
    write_made_up(root, dtype, images=base)
    items = as_known(base)
    as_it_was: dict[int, KnownItems] = {}
    index = open_index(root, checkpoint=checkpoint)
    with closing(ChangesWriter(root, checkpoint.model_id)) as writer:
        for step in range(1, 25):
            items = change(writer, items, made_up, random, step)
            if step in (9, 18):
                as_it_was[live_generation(root)] = items
                compact_index(root, keep=2)
                assert set(pending_changes(root).values()) == {(0, 0)}
            if step == 13:  # back to the first generation, as it was when it was replaced
                left = live_generation(root)
                as_it_was[left] = items
                assert rollback_index(root).generation == 1
                items = as_it_was[1]
            if step % 5 == 0 or index.generation != live_generation(root):
                index.close()
                index = open_index(root, checkpoint=checkpoint)
            check(index, items, random)
    index.close()
