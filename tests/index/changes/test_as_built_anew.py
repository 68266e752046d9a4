"""An index that was changed answers as one that was built of the items that are left."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.compact import compact_index
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.filters import parse_filter
from aladin_index.search.collection import ListOrder
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint_files import Checkpoint
from tests.index.items.test_filtered_rows import NUMBERS, TEXTS, passes
from tests.index.written import made_up

# Words are rare up to five items here: some are just so, others are not.
PLACES = [f"place{number}" for number in range(30)]
PHOTOS = 150
FIELDS = ["x", "y", "and", 'odd "name"']
VALUES = [*TEXTS, *NUMBERS, True, False]
FINITE = [value for value in VALUES if value != 2**70]


def some_metadata(choose: random.Random) -> dict[str, Any]:
    def value() -> Any:
        return choose.choice([*VALUES, None, [choose.choice(VALUES), choose.choice(VALUES)]])

    return {field: value() for field in FIELDS if choose.random() < 0.7}


def some_filter(choose: random.Random, depth: int = 2) -> dict[str, Any]:
    if depth and choose.random() < 0.5:
        parts = [some_filter(choose, depth - 1) for _ in range(2)]
        return choose.choice([{"$and": parts}, {"$or": parts}, {"$not": parts[0]}])
    bounds = [value for value in FINITE if not isinstance(value, bool)]
    comparison = choose.choice(
        [
            {"eq": choose.choice(FINITE)},
            {"nin": choose.sample(FINITE, 3)},
            {"gte": choose.choice(bounds)},
            {"gt": choose.choice(NUMBERS), "lte": choose.choice(NUMBERS)},
            {"gte": choose.choice(TEXTS), "lt": choose.choice(TEXTS)},
            {"exists": choose.random() < 0.5},
        ]
    )
    return {choose.choice(FIELDS): comparison}


class Library:
    """Photos by id, in the order of their rows; each may be replaced by another version."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.live: dict[str, ItemBatch] = {}
        self._versions = 0

    def photo(self, item_id: str) -> ItemBatch:
        """Make a new version of a photo, and note it as the one that is left."""
        self._versions += 1
        new = made_up([item_id], self._versions)
        # Small numbers are frequent: the words have one item, some, or many.
        place = PLACES[int(len(PLACES) * self.choose.random() ** 2)]
        told = {"place": place, "n": self.choose.randrange(80)} | some_metadata(self.choose)
        self.live.pop(item_id, None)
        self.live[item_id] = replace(new, items=[new.items[0]._replace(metadata=told)])
        return self.live[item_id]

    def change(self, writer: ChangesWriter, step: int) -> None:
        """Add, replace and delete some."""
        ids = self.choose.sample(sorted(self.live), 4)
        if step % 4 == 3:
            writer.delete("images", ids)
            for item_id in ids:
                del self.live[item_id]
            return
        again = ["p7"] * (step % 5)  # replaced again and again
        for each in [f"new{step}", *ids, *again]:
            writer.add("images", self.photo(each), "replace")

    def check_filters(self, index: SearchIndex) -> None:
        """Compare random filters with the rules of their language."""
        metadata = {key: each.items[0].metadata for key, each in self.live.items()}
        for _ in range(4):
            spec = some_filter(self.choose)
            collection = index.collection("images", parse_filter(spec))
            assert collection.selection is not None
            rows = collection.selection.rows.tolist()
            found = {item.id for item in collection.items.by_rows(rows)}
            assert found == {key for key, each in metadata.items() if passes(each, spec)}, spec


def joined(parts: Sequence[ItemBatch]) -> ItemBatch:
    return ItemBatch(
        items=[item for part in parts for item in part.items],
        embeddings=np.concatenate([part.embeddings for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
    )


def answers(index: SearchIndex, options: SearchOptions, text: str) -> list[tuple[Any, ...]]:
    searcher = TwoStageSearcher(index)
    query = searcher.stored_query("t1")._replace(text=text, own_id=None)
    answer = searcher.search(query, "images", options)
    return [
        (hit.id, pytest.approx(hit.score, abs=1e-5), hit.stages.lexical, hit.text, hit.metadata)
        for hit in answer.hits
    ]


def listed(index: SearchIndex, order: ListOrder, filter: dict[str, Any]) -> tuple[int, list[str]]:
    page = index.collection("images", parse_filter(filter)).list_items(order, None, 500)
    return page.total, [item.id for item in page.items]


@pytest.mark.parametrize(
    ("seed", "fields", "compacted"),
    [
        (0, None, False),
        (1, ("x", "and", "n", "place"), False),
        (2, None, True),
        (3, ("x", "n", "place"), True),
    ],
)
def test_a_changed_index_is_as_one_that_was_built_of_what_is_left(
    tmp_path: Path,
    checkpoint: Checkpoint,
    write_made_up: Callable[..., int],
    seed: int,
    fields: tuple[str, ...] | None,
    compacted: bool,
) -> None:
    library, root, anew = Library(seed), tmp_path / "changed", tmp_path / "anew"
    texts, settings = made_up([f"t{n}" for n in range(3)]), BuildSettings(filter_fields=fields)
    first = joined([library.photo(f"p{number}") for number in range(PHOTOS)])
    write_made_up(root, images=first, texts=texts, settings=settings)
    with open_index(root, checkpoint=checkpoint) as following:
        for step in range(24):
            with closing(ChangesWriter(root, checkpoint.model_id)) as writer:
                library.change(writer, step)
            library.check_filters(following)
    if compacted:
        compact_index(root)
        with closing(ChangesWriter(root, checkpoint.model_id)) as writer:
            for step in range(24, 32):
                library.change(writer, step)
    left = joined([*library.live.values()])
    write_made_up(anew, images=left, texts=texts, settings=settings)
    with (
        open_index(root, checkpoint=checkpoint) as ours,
        open_index(anew, checkpoint=checkpoint) as theirs,
    ):
        library.check_filters(ours)
        assert ours.collection("images").list_fields() == theirs.collection("images").list_fields()
        for order in (ListOrder(), ListOrder("n"), ListOrder("place", descending=False)):
            for filter in ({}, {"n": {"lt": 9}}):
                assert listed(ours, order, filter) == listed(theirs, order, filter)
        some: list[Any] = [{"candidates": 10}, {"candidates": "exhaustive"}]
        for more in [*some, {"candidates": 10, "filter": {"n": {"lt": 40}}}]:
            options = SearchOptions(k=12, lexical=1.0, **more)
            for text in PLACES:
                assert answers(ours, options, text) == answers(theirs, options, text), text


def test_values_of_deleted_items_alone_are_not_described(
    tmp_path: Path, checkpoint: Checkpoint, write_made_up: Callable[..., int]
) -> None:
    root, ids = tmp_path / "index", [f"i{n}" for n in range(60)]
    values: dict[str, list[Any]] = {
        "n": list(range(60)),
        "rare": [*["x"] * 10, *[None] * 50],
        "year": [1970, *[2020] * 58, 2099],
    }
    write_made_up(root, images=made_up(ids, **values))
    with closing(ChangesWriter(root, checkpoint.model_id)) as writer:
        writer.delete("images", [*ids[:10], "i59"])
    with open_index(root) as index:
        fields = index.collection("images").list_fields()
    assert [*fields] == ["n", "year"]
    assert fields["n"][0].counts == dict.fromkeys(range(10, 59), 1)
    assert (fields["n"][0].least, fields["n"][0].greatest) == (10, 58)
    assert (fields["year"][0].least, fields["year"][0].greatest) == (2020, 2020)
