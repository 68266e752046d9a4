"""An index with changes answers as one that was built of the items that are left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.filters import parse_filter
from aladin_index.search.collection import ListOrder
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint import load_checkpoint

MakeItems = Callable[..., ItemBatch]
# Words are rare up to five items here: some are just so, others are not.
PLACES = [f"place{number}" for number in range(30)]
PHOTOS = 150


class _Library:
    """Photos with a place and a number, by id; each may be replaced by another version."""

    def __init__(self, made_up: MakeItems, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.live: dict[str, ItemBatch] = {}
        self._made_up = made_up
        self._versions = 0

    def photo(self, item_id: str) -> ItemBatch:
        """Make a new version of a photo, and note it as the one that is left."""
        self._versions += 1
        # Small numbers are frequent: the words have one item, some, or many.
        place = PLACES[int(len(PLACES) * self.random.random() ** 2)]
        number = int(self.random.integers(0, 80))
        kind = ["a", "b", 1][int(self.random.integers(0, 3))]
        new = self._made_up([item_id], self._versions, place=[place], n=[number], kind=[kind])
        self.live.pop(item_id, None)
        self.live[item_id] = new
        return new


def joined(parts: Sequence[ItemBatch]) -> ItemBatch:
    return ItemBatch(
        items=[item for part in parts for item in part.items],
        embeddings=np.concatenate([part.embeddings for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
    )


@pytest.fixture(scope="module", params=range(2))
def both(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
) -> tuple[Path, Path]:
    """An index that was changed in many steps, and one of the photos that are left."""
    library = _Library(made_up, request.param)
    texts = made_up([f"t{number}" for number in range(3)])
    first = joined([library.photo(f"p{number}") for number in range(PHOTOS)])
    place = tmp_path_factory.mktemp("libraries")
    changed, anew = place / "changed", place / "anew"
    write_made_up(changed, images=first, texts=texts)
    with closing(ChangesWriter(changed, load_checkpoint(tiny_checkpoint).model_id)) as writer:
        for step in range(40):
            ids = [str(each) for each in library.random.choice([*library.live], 4, replace=False)]
            if step % 4 == 3:
                writer.delete("images", ids)
                for item_id in ids:
                    del library.live[item_id]
                continue
            again = ["p7"] * (step % 5)  # replaced again and again
            new = [library.photo(each) for each in [f"new{step}", *ids, *again]]
            for version in new:
                writer.add("images", version, "replace")
    write_made_up(anew, images=joined([*library.live.values()]), texts=texts)
    return changed, anew


def answers(index: SearchIndex, options: SearchOptions, text: str) -> list[tuple[Any, ...]]:
    searcher = TwoStageSearcher(index)
    query = searcher.stored_query("t1")._replace(text=text, own_id=None)
    answer = searcher.search(query, "images", options)
    return [
        (hit.id, pytest.approx(hit.score, abs=1e-5), hit.stages.lexical, hit.text, hit.metadata)
        for hit in answer.hits
    ]


@pytest.mark.parametrize("candidates", [10, "exhaustive"])
def test_words_find_the_same_items(both: tuple[Path, Path], candidates: Any) -> None:
    with open_index(both[0]) as changed, open_index(both[1]) as anew:
        for text in PLACES:
            options = SearchOptions(k=12, candidates=candidates, lexical=1.0)
            assert answers(changed, options, text) == answers(anew, options, text), text
            filtered = SearchOptions(k=12, candidates=10, lexical=1.0, filter={"n": {"lt": 40}})
            assert answers(changed, filtered, text) == answers(anew, filtered, text), text


def test_fields_and_lists_are_the_same(both: tuple[Path, Path]) -> None:
    with open_index(both[0]) as changed, open_index(both[1]) as anew:
        assert changed.collection("images").list_fields() == anew.collection("images").list_fields()
        for order in (ListOrder(), ListOrder("n"), ListOrder("place", descending=False)):
            for filter in ({}, {"kind": "a"}):
                pages = [
                    index.collection("images", parse_filter(filter)).list_items(order, None, 500)
                    for index in (changed, anew)
                ]
                assert pages[0].total == pages[1].total
                assert [item.id for item in pages[0].items] == [item.id for item in pages[1].items]


def test_values_of_deleted_items_alone_are_not_described(
    tmp_path: Path, tiny_checkpoint: Path, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    root, ids = tmp_path / "index", [f"i{n}" for n in range(60)]
    values: dict[str, list[Any]] = {
        "n": list(range(60)),
        "rare": [*["x"] * 10, *[None] * 50],
        "year": [1970, *[2020] * 58, 2099],
    }
    write_made_up(root, images=made_up(ids, **values))
    with closing(ChangesWriter(root, load_checkpoint(tiny_checkpoint).model_id)) as writer:
        writer.delete("images", [*ids[:10], "i59"])
    with open_index(root) as index:
        fields = index.collection("images").list_fields()
    assert [*fields] == ["n", "year"]
    assert fields["n"][0].counts == dict.fromkeys(range(10, 59), 1)
    assert (fields["n"][0].least, fields["n"][0].greatest) == (10, 58)
    assert (fields["year"][0].least, fields["year"][0].greatest) == (2020, 2020)
