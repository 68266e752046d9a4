"""Searches of all items, against re-ranking all items as candidates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search import file_collection, plan
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import EXACT_ALIGN
from aladin_network.errors import EngineUnavailableError, InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality, Target
from tests.index.searching import run_search

MakeItems = Callable[..., ItemBatch]
DIRECTIONS: list[tuple[Modality, Target]] = [("text", "images"), ("image", "texts")]


def twice(new: ItemBatch) -> ItemBatch:
    """The same items again under other ids, so that all scores are tied."""
    return ItemBatch(
        items=[*new.items, *(item._replace(id=f"{item.id} again") for item in new.items)],
        embeddings=np.concatenate([new.embeddings, new.embeddings]),
        tokens=np.concatenate([new.tokens, new.tokens]),
        lengths=np.concatenate([new.lengths, new.lengths]),
    )


@pytest.fixture(scope="module")
def index(
    tmp_path_factory: pytest.TempPathFactory,
    write_made_up: Callable[..., int],
    made_up: MakeItems,
) -> Iterator[SearchIndex]:
    root = tmp_path_factory.mktemp("exhaustive") / "index"
    photos = [f"p{place}" for place in range(400)]
    texts = [f"t{place}" for place in range(150)]
    write_made_up(
        root,
        dtype="int8",
        images=twice(made_up(photos, n=list(range(400)))),
        texts=twice(made_up(texts, n=list(range(150)))),
    )
    with open_index(root) as opened:
        yield opened


def encoding(seed: int) -> Encoding:
    random = np.random.default_rng(seed)
    embedding = random.standard_normal(16).astype(np.float32)
    tokens = random.standard_normal((5, 8)).astype(np.float32)
    return Encoding.of_item(
        embedding / np.linalg.norm(embedding),
        tokens / np.linalg.norm(tokens, axis=-1, keepdims=True),
    )


def summary(answer: SearchAnswer, *, align_ranks: bool) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for hit in answer.hits:
        align = hit.stages.align
        assert align is not None
        found.append((hit.id, hit.rank, hit.score, hit.stages.match, align.score))
        if align_ranks:
            found[-1] += (align.rank,)
    return found


def assert_as_all_candidates(
    searcher: TwoStageSearcher, modality: Modality, target: Target, seed: int, **options: Any
) -> None:
    count = searcher.index.collection(target).count
    every = run_search(searcher, encoding(seed), modality, target, candidates=count + 5, **options)
    found = run_search(
        searcher, encoding(seed), modality, target, candidates="exhaustive", **options
    )
    assert every.reranked and found.reranked and found.degraded == []
    ranks = options["fusion"] == 1
    assert summary(found, align_ranks=ranks) == summary(every, align_ranks=ranks)


@pytest.mark.parametrize(("modality", "target"), DIRECTIONS)
@pytest.mark.parametrize("fusion", [0, 0.3, 1])
def test_hits_are_those_of_all_candidates(
    index: SearchIndex, modality: Modality, target: Target, fusion: float
) -> None:
    searcher = TwoStageSearcher(index)
    for seed in range(3):
        for page in ({}, {"k": 1}, {"k": 30, "offset": 7}, {"k": 1000}, {"offset": 2000}):
            assert_as_all_candidates(searcher, modality, target, seed, fusion=fusion, **page)
        for most in (3, 200):  # few items are scored without bounds
            assert_as_all_candidates(
                searcher, modality, target, seed, fusion=fusion, filter={"n": {"lt": most}}
            )


@pytest.mark.parametrize(("modality", "target"), DIRECTIONS)
@pytest.mark.parametrize("fusion", [0, 0.3, 1])
def test_many_candidates_are_ordered_by_bounds_as_without(
    index: SearchIndex,
    modality: Modality,
    target: Target,
    fusion: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_collection, "LEAST_BOUNDED", 100)
    searcher = TwoStageSearcher(index)
    count = 200 if target == "texts" else 500
    options: dict[str, Any] = {"candidates": count, "fusion": fusion}
    pages: list[dict[str, Any]] = [{}, {"k": 1}, {"k": 30, "offset": 7}, {"k": 150}]
    pages.append({"k": 60, "offset": count - 20})
    for page in pages:
        answers: list[SearchAnswer] = []
        for is_bounded in (False, True):
            collection = index.images if target == "images" else index.texts
            assert collection is not None and collection.bounds is not None
            bounds = collection.bounds.get() if is_bounded else None
            monkeypatch.setattr(collection.bounds, "_bounds", bounds)
            answers.append(run_search(searcher, encoding(7), modality, target, **options, **page))
        plain, bounded = answers
        assert summary(bounded, align_ranks=True) == summary(plain, align_ranks=True)
        assert bounded.reranked and bounded.candidates == count


def test_hits_are_those_of_all_candidates_after_changes(
    tmp_path: Path, write_made_up: Callable[..., int], made_up: MakeItems
) -> None:
    root = tmp_path / "index"
    write_made_up(root, dtype="int8", images=made_up([f"p{place}" for place in range(200)]))
    with open_index(root) as opened:
        searcher = TwoStageSearcher(opened)
        assert_as_all_candidates(searcher, "text", "images", 0, fusion=0.5)
        with closing(ChangesWriter(root, opened.checkpoint.model_id)) as writer:
            writer.add("images", made_up([f"new {place}" for place in range(30)]), "error")
            writer.delete("images", [f"p{place}" for place in range(0, 200, 3)])
        for seed in range(4):
            assert_as_all_candidates(searcher, "text", "images", seed, fusion=0.5)
            assert_as_all_candidates(searcher, "text", "images", seed, fusion=1, k=200)


def test_the_answer_names_all_items_as_candidates(index: SearchIndex) -> None:
    searcher = TwoStageSearcher(index)
    answer = run_search(searcher, encoding(1), "text", "images", candidates="exhaustive", fusion=1)
    assert answer.candidates == 800
    few = run_search(
        searcher, encoding(1), "text", "images", candidates="exhaustive", fusion=1, filter={"n": 4}
    )
    assert (few.candidates, len(few.hits)) == (2, 2)
    none = run_search(
        searcher, encoding(1), "text", "images", candidates="exhaustive", fusion=1, filter={"n": -1}
    )
    assert (none.candidates, none.hits) == (0, [])


def test_what_is_no_alignment_takes_the_candidates_of_the_index(index: SearchIndex) -> None:
    searcher = TwoStageSearcher(index)
    asked: list[tuple[Modality, bool]] = [("text", False), ("image", True)]
    for modality, rerank in asked:
        both = [
            run_search(
                searcher, encoding(1), modality, "images", candidates=each, rerank=rerank, fusion=1
            )  # pyright: ignore[reportArgumentType]
            for each in ("exhaustive", None)
        ]
        assert both[0].hits == both[1].hits
        assert not both[0].reranked


def test_without_time_the_first_stage_orders(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = TwoStageSearcher(index)
    ordinary = run_search(searcher, encoding(2), "text", "images", rerank=False, fusion=1, offset=3)
    late = run_search(
        searcher,
        encoding(2),
        "text",
        "images",
        candidates="exhaustive",
        fusion=1,
        offset=3,
        deadline_s=time.monotonic() - 1,
    )
    assert (late.reranked, late.degraded) == (False, ["rerank_timeout"])
    assert [hit.id for hit in late.hits] == [hit.id for hit in ordinary.hits]

    def fail(*_: object) -> None:
        raise EngineUnavailableError("tokens", "not there")

    monkeypatch.setattr(type(index.collection("images")), "align", fail)
    lost = run_search(
        searcher, encoding(2), "text", "images", candidates="exhaustive", fusion=1, offset=3
    )
    assert (lost.reranked, lost.degraded) == (False, ["rerank_unavailable"])
    assert [hit.id for hit in lost.hits] == [hit.id for hit in ordinary.hits]


def test_few_items_are_scored(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    align = type(index.collection("images")).align

    def counted(self: Any, query: Any, modality: Any, rows: Any) -> Any:
        counts.append(len(rows))
        return align(self, query, modality, rows)

    monkeypatch.setattr(type(index.collection("images")), "align", counted)
    searcher = TwoStageSearcher(index)
    for seed in range(5):
        run_search(searcher, encoding(seed), "text", "images", candidates="exhaustive", fusion=1)
    assert sum(counts) < 5 * 400  # of 800 each


def test_a_large_index_takes_a_number(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_ITEMS", 799)
    searcher = TwoStageSearcher(index)
    with pytest.raises(InputError, match=r"at most 799 items; this one has 800"):
        run_search(searcher, encoding(1), "text", "images", candidates="exhaustive", fusion=1)


def test_an_index_can_make_it_the_default(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = TwoStageSearcher(index)
    assert index.images is not None
    monkeypatch.setitem(index.images.entry.ann.__dict__, "asked", EXACT_ALIGN)
    by_default = run_search(searcher, encoding(3), "text", "images", fusion=1)
    assert by_default.candidates == 800
    assert (
        run_search(searcher, encoding(3), "text", "images", fusion=1, candidates=7).candidates == 7
    )
    monkeypatch.setattr(plan, "MAX_ITEMS", 10)
    assert run_search(searcher, encoding(3), "text", "images", fusion=1).candidates == 100


def test_candidates_are_a_number_or_exhaustive() -> None:
    SearchOptions(candidates="exhaustive").check()
    SearchOptions(candidates=1).check()
    for wrong in (0, "some"):
        with pytest.raises(
            InputError, match=f"candidates: expected at least 1 or exhaustive, got {wrong}"
        ):
            SearchOptions(candidates=wrong).check()  # pyright: ignore[reportArgumentType]
