"""Random filters on an index that another process changes, against the rules of the language."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.generations.compact import compact_index
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.filters import parse_filter
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from tests.index.items.test_filtered_rows import NUMBERS, TEXTS, passes

FIELDS = ["x", "y", "and", 'odd "name"']
VALUES = [*TEXTS, *NUMBERS, True, False]
FINITE = [value for value in VALUES if value != 2**70]


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


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


def check(index: SearchIndex, metadata: dict[str, dict[str, Any]], choose: random.Random) -> None:
    for _ in range(12):
        spec = some_filter(choose)
        collection = index.collection("images", parse_filter(spec))
        assert collection.selection is not None
        found = {item.id for item in collection.items.by_rows(collection.selection.rows.tolist())}
        assert found == {key for key, each in metadata.items() if passes(each, spec)}, spec


@pytest.mark.parametrize("fields", [None, ("x", "and")], ids=["every field", "declared"])
def test_filters_follow_additions_deletions_and_compaction(
    tmp_path: Path,
    checkpoint: Checkpoint,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
    fields: tuple[str, ...] | None,
) -> None:
    choose, root = random.Random(0), tmp_path / "index"
    known: dict[str, dict[str, Any]] = {}

    def new_items(count: int) -> ItemBatch:
        names = [f"item {len(known) + place} {choose.random()}" for place in range(count)]
        new = made_up(names)
        items = [item._replace(metadata=some_metadata(choose)) for item in new.items]
        known.update({item.id: item.metadata for item in items})
        return replace(new, items=items)

    write_made_up(root, images=new_items(40), settings=BuildSettings(filter_fields=fields))
    for _ in range(2):
        with open_index(root, checkpoint=checkpoint) as index:
            for step in range(6):
                with closing(ChangesWriter(root, checkpoint.model_id)) as writer:
                    if step % 3 == 2:
                        gone = choose.sample(sorted(known), 5)
                        writer.delete("images", gone)
                        for key in gone:
                            del known[key]
                    else:
                        writer.add("images", new_items(1 + 3 * step), "error")
                check(index, known, choose)
        compact_index(root)
    with open_index(root, checkpoint=checkpoint) as index:
        assert index.images is not None
        assert index.images.items.count == len(known)
        check(index, known, choose)
