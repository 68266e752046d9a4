"""A living index against a slow model of it: a dict of items, and a look at every one of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.layout import live_generation
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.collection import FirstStageQuery
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import DuplicateItemError, UnknownItemError
from aladin_network.scoring.encoding import Encoding
from tests.index.searching import run_search

MakeItems = Callable[..., ItemBatch]
Items = dict[str, "Known"]


class Known(NamedTuple):
    """What the slow model keeps of an item."""

    embedding: np.ndarray
    tokens: np.ndarray
    metadata: dict[str, Any]
    text: str | None


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


def known(new: ItemBatch) -> Items:
    ends = np.cumsum(new.lengths)
    return {
        item.id: Known(
            new.embeddings[place],
            new.tokens[ends[place] - new.lengths[place] : ends[place]],
            item.metadata,
            item.text,
        )
        for place, item in enumerate(new.items)
    }


def made_up_query(random: np.random.Generator) -> Encoding:
    embedding = random.standard_normal(16).astype(np.float32)
    words = random.standard_normal((3, 8)).astype(np.float32)
    return Encoding.of_item(
        embedding / np.linalg.norm(embedding),
        words / np.linalg.norm(words, axis=-1, keepdims=True),
    )


def slow_search(
    items: Items, query: Encoding, block: int, as_stored: Callable[[np.ndarray], np.ndarray]
) -> list[tuple[str, float, float]]:
    """Return (id, alignment score, cosine) in the order of an answer, item by item."""
    scored: list[tuple[str, float, float]] = []
    for item_id, item in items.items():
        similarity = query.tokens[0] @ as_stored(item.tokens).T
        align = sum(max(row) for row in similarity.tolist())
        scored.append((item_id, align, float(item.embedding @ query.embedding[0])))
    scored.sort(key=lambda hit: -hit[2])
    answer: list[tuple[str, float, float]] = []
    for start in range(0, len(scored), block):
        answer += sorted(scored[start : start + block], key=lambda hit: -hit[1])
    return answer


def assert_same(result: SearchAnswer, expected: list[tuple[str, float, float]], k: int) -> None:
    found = [(hit.id, hit.stages.align.score, hit.stages.match.score) for hit in result.hits]
    assert [hit[0] for hit in found] == [hit[0] for hit in expected[:k]]
    for got, wanted in zip(found, expected, strict=False):
        assert got[1:] == pytest.approx(wanted[1:], abs=1e-4)


def check(index: SearchIndex, items: Items, random: np.random.Generator) -> None:
    """Compare an open index with the model: searches, look-ups, counts."""
    searcher = TwoStageSearcher(index)
    collection = index.collection("images")
    codec = index.images.tokens.codec

    def as_stored(tokens: np.ndarray) -> np.ndarray:
        return codec.unpack(codec.pack(tokens))

    assert collection.count == len(items)
    assert dict(collection.items.ids()).keys() == items.keys()
    query = made_up_query(random)
    for block, k in ((5, 99), (99, 99), (4, 3)):
        result = run_search(searcher, query, "text", "images", k=k, candidates=block)
        assert_same(result, slow_search(items, query, block, as_stored), k)
    bound = int(random.integers(0, 10))
    passing = {item_id: item for item_id, item in items.items() if item.metadata["n"] >= bound}
    result = run_search(
        searcher, query, "text", "images", k=6, candidates=7, filter={"n": {"gte": bound}}
    )
    assert_same(result, slow_search(passing, query, 7, as_stored), 6)
    assert len(result.hits) == min(6, len(passing))
    for item_id in random.choice(sorted(items), 3).tolist():
        item = collection.items.by_id(item_id)
        assert (item.text, item.metadata) == (items[item_id].text, items[item_id].metadata)
        encoding, _ = searcher.stored_query(item_id)[:2]
        np.testing.assert_array_equal(encoding.embedding[0], items[item_id].embedding)
        np.testing.assert_array_equal(encoding.tokens[0], as_stored(items[item_id].tokens))


def change(
    writer: ChangesWriter, items: Items, made_up: MakeItems, random: np.random.Generator, step: int
) -> Items:
    """Do something at random to the index, and return what the model has then."""
    free = [f"i{n}" for n in range(60) if f"i{n}" not in items]
    there = random.choice(sorted(items), min(3, len(items) - 1), replace=False).tolist()
    fresh = random.choice(free, 3, replace=False).tolist()
    numbers = random.integers(0, 10, 5).tolist()
    kind = random.choice(["add", "replace", "skip", "delete", "refused", "unknown"])
    if kind == "add":
        new = made_up(fresh, seed=step, n=numbers)
        assert writer.add("images", new, "error").ids["added"] == fresh
        return items | known(new)
    if kind in ("replace", "skip"):
        ids = [fresh[0], *there[:2], fresh[1]]
        new = made_up(ids, seed=step, n=numbers)
        report = writer.add("images", new, kind)
        assert report.ids["added"] == fresh[:2]
        assert (report.ids["replaced"] if kind == "replace" else report.ids["kept"]) == there[:2]
        return items | known(new) if kind == "replace" else known(new) | items
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
    ("seed", "dtype"), [(0, "float16"), (1, "int8"), (2, "4bit"), (3, "float16"), (4, "4bit")]
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
    items = known(base)
    as_it_was: dict[int, Items] = {}
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

    fresh = tmp_path / "fresh"
    new = [made_up_again(item_id, item) for item_id, item in items.items()]
    write_made_up(fresh, images=joined(new))
    if dtype == "float16":  # codebooks are made of other tokens there
        same_hits(root, fresh, checkpoint, random)


def made_up_again(item_id: str, item: Known) -> ItemBatch:
    from aladin_index.items.tables import StoredItem

    stored = StoredItem(-1, item_id, None, None, item.text, None, None, None, item.metadata)
    lengths = np.array([len(item.tokens)])
    return ItemBatch(
        items=[stored], embeddings=item.embedding[None], tokens=item.tokens, lengths=lengths
    )


def joined(parts: list[ItemBatch]) -> ItemBatch:
    return ItemBatch(
        items=[item for part in parts for item in part.items],
        embeddings=np.concatenate([part.embeddings for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
    )


def same_hits(
    living: Path, fresh: Path, checkpoint: Checkpoint, random: np.random.Generator
) -> None:
    with (
        open_index(living, checkpoint=checkpoint) as one,
        open_index(fresh, checkpoint=checkpoint) as other,
    ):
        for _ in range(5):
            query = made_up_query(random)
            answers = [
                run_search(
                    TwoStageSearcher(index),
                    query,
                    "text",
                    "images",
                    k=50,
                    candidates=6,
                    filter={"n": {"lt": 7}},
                )
                for index in (one, other)
            ]
            assert [hit.id for hit in answers[0].hits] == [hit.id for hit in answers[1].hits]
            for left, right in zip(answers[0].hits, answers[1].hits, strict=True):
                assert left.score == pytest.approx(right.score, abs=1e-5)


def test_equal_scores_are_ordered_by_row_also_over_the_border(
    tmp_path: Path, checkpoint: Checkpoint, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    base = made_up(["a", "b", "c"])
    same = replace(base, embeddings=np.repeat(base.embeddings[:1], 3, axis=0))
    write_made_up(tmp_path / "index", images=same)
    with (
        open_index(tmp_path / "index", checkpoint=checkpoint) as index,
        closing(ChangesWriter(index.path, checkpoint.model_id)) as writer,
    ):
        twins = replace(made_up(["d", "e"]), embeddings=same.embeddings[:2])
        writer.add("images", twins, "error")
        query = same.embeddings[0]
        for count in range(1, 6):
            found = index.collection("images").order(FirstStageQuery(query, count, count))
            assert found.rows.tolist() == list(range(count))
            assert found.match == pytest.approx(1, abs=1e-6)
        writer.delete("images", ["b", "d"])
        assert index.collection("images").order(FirstStageQuery(query, 9, 9)).rows.tolist() == [
            0,
            2,
            4,
        ]


def test_a_collection_that_was_emptied_and_filled_again(
    tmp_path: Path, checkpoint: Checkpoint, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    write_made_up(tmp_path / "index", images=made_up(["a", "b"], n=[1, 2]))
    with (
        open_index(tmp_path / "index", checkpoint=checkpoint) as index,
        closing(ChangesWriter(index.path, checkpoint.model_id)) as writer,
    ):
        searcher = TwoStageSearcher(index)
        query = made_up_query(np.random.default_rng(0))
        writer.delete("images", ["a", "b"])
        for rerank in (True, False):
            for filter in (None, {"n": 1}):
                result = run_search(
                    searcher, query, "text", "images", k=3, rerank=rerank, filter=filter
                )
                assert result.hits == []
        writer.add("images", made_up(["b"], seed=1, n=[3]), "error")
        assert [hit.id for hit in run_search(searcher, query, "text", "images", k=3).hits] == ["b"]
        assert index.collection("images").count == 1


def test_the_items_of_a_filter_are_found_among_many_tombstones(
    tmp_path: Path, checkpoint: Checkpoint, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    """Of 300 items half are removed and 100 added; a filter still gets its k, the right ones."""
    ids = [f"i{n}" for n in range(300)]
    write_made_up(tmp_path / "index", images=made_up(ids, n=[n % 30 for n in range(300)]))
    with (
        open_index(tmp_path / "index", checkpoint=checkpoint) as index,
        closing(ChangesWriter(index.path, checkpoint.model_id)) as writer,
    ):
        writer.delete("images", ids[::2])
        new = made_up([f"j{n}" for n in range(100)], n=[n % 30 for n in range(100)])
        writer.add("images", new, "error")
        collection = index.collection("images")
        query = made_up_query(np.random.default_rng(1))
        for wanted in range(30):
            passing = [n for n in range(1, 300, 2) if n % 30 == wanted]
            passing += [300 + n for n in range(100) if n % 30 == wanted]
            result = run_search(
                TwoStageSearcher(index),
                query,
                "text",
                "images",
                k=4,
                candidates=4,
                filter={"n": wanted},
            )
            vectors = np.stack([collection.embedding(row) for row in passing])
            best = np.argsort(-(vectors @ query.embedding[0]))[: min(4, len(passing))]
            rows = [collection.items.by_id(hit.id).row for hit in result.hits]
            assert set(rows) == {passing[place] for place in best}


def test_a_collection_without_tokens_is_answered_by_the_first_stage_and_says_so(
    tmp_path: Path, checkpoint: Checkpoint, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    new = made_up(["a", "b", "c"])
    bare = replace(new, tokens=new.tokens[:0], lengths=np.zeros(3, dtype=np.int64))
    write_made_up(tmp_path / "index", images=bare)
    with open_index(tmp_path / "index", checkpoint=checkpoint) as index:
        searcher = TwoStageSearcher(index)
        query = made_up_query(np.random.default_rng(2))
        cosines = new.embeddings @ query.embedding[0]
        for rerank in (True, False):
            result = run_search(
                searcher, query, "text", "images", k=3, rerank=rerank, explain=True, text="x"
            )
            assert (result.reranked, result.fusion) == (False, None)
            assert result.degraded == (["rerank"] if rerank else [])
            assert [hit.id for hit in result.hits] == ["abc"[n] for n in np.argsort(-cosines)]
            assert all(hit.stages.align is None and hit.per_word is None for hit in result.hits)
