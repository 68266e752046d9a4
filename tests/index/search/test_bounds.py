"""Searches that skip items by their bounds, of items that come twice: all scores are tied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search import file_collection, plan
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import EXACT_ALIGN
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality, Target
from tests.index.search.conftest import MakeItems, unit_rows
from tests.index.searching import run_search

DIRECTIONS: list[tuple[Modality, Target]] = [("text", "images"), ("image", "texts")]
PAGES: list[dict[str, Any]] = [{}, {"k": 1}, {"k": 30, "offset": 7}, {"k": 150}, {"offset": 2000}]
COUNTS = {"images": 600, "texts": 300}


def twice(new: ItemBatch) -> ItemBatch:
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
    root = tmp_path_factory.mktemp("twice") / "index"
    made = {
        target: twice(
            made_up([f"{target} {n}" for n in range(count // 2)], n=list(range(count // 2)))
        )
        for target, count in COUNTS.items()
    }
    write_made_up(root, dtype="int8", **made)
    with open_index(root) as opened:
        yield opened


def search(
    index: SearchIndex, seed: int, target: Target = "images", **options: Any
) -> SearchAnswer:
    random = np.random.default_rng(seed)
    query = Encoding.of_item(unit_rows(random, 16), unit_rows(random, 5, 8))
    modality: Modality = "text" if target == "images" else "image"
    return run_search(TwoStageSearcher(index), query, modality, target, **options)


def summary(answer: SearchAnswer, *, align_ranks: bool = True) -> list[Any]:
    assert answer.reranked and answer.degraded == []
    return [
        (hit.id, hit.rank, hit.score, hit.stages.match, align.score, align.rank * align_ranks)
        for hit in answer.hits
        for align in [hit.stages.align]
        if align is not None
    ]


@pytest.mark.parametrize("target", COUNTS)
@pytest.mark.parametrize("fusion", [0, 0.3, 1])
def test_all_items_are_ordered_as_without_bounds(
    index: SearchIndex, target: Target, fusion: float
) -> None:
    # Filters leave a few items, which are scored without bounds, and many.
    for options in [*PAGES, {"filter": {"n": {"lt": 3}}}, {"filter": {"n": {"lt": 100}}}]:
        every, found = (
            search(index, 1, target, candidates=candidates, fusion=fusion, **options)
            for candidates in (COUNTS[target] + 5, "exhaustive")
        )
        assert found.candidates == every.candidates
        ranks = fusion == 1
        assert summary(found, align_ranks=ranks) == summary(every, align_ranks=ranks)


@pytest.mark.parametrize("target", COUNTS)
@pytest.mark.parametrize("fusion", [0, 0.3, 1])
def test_many_candidates_are_ordered_as_without_bounds(
    index: SearchIndex, target: Target, fusion: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_collection, "LEAST_BOUNDED", 100)
    collection, count = index.images if target == "images" else index.texts, COUNTS[target] // 2
    assert collection is not None and collection.bounds is not None
    bounds = collection.bounds.get()
    for page in [*PAGES[:4], {"k": 60, "offset": count - 20}]:
        answers: list[SearchAnswer] = []
        for known in (None, bounds):
            monkeypatch.setattr(collection.bounds, "_bounds", known)
            answers.append(search(index, 7, target, candidates=count, fusion=fusion, **page))
        assert summary(answers[1]) == summary(answers[0])
        assert answers[1].candidates == count


def test_few_items_are_scored(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []
    align = file_collection.FileCollection.align

    def counted(self: Any, query: Any, modality: Any, rows: Any) -> Any:
        scored.append(len(rows))
        return align(self, query, modality, rows)

    monkeypatch.setattr(file_collection.FileCollection, "align", counted)
    for seed in range(5):
        search(index, seed, candidates="exhaustive", fusion=1)
    assert sum(scored) < 5 * COUNTS["images"] / 2


def test_an_index_may_search_all_items_by_default_until_it_has_too_many(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert index.images is not None
    monkeypatch.setitem(index.images.entry.ann.__dict__, "asked", EXACT_ALIGN)
    by_default = [search(index, 3, fusion=1, **each).candidates for each in ({}, {"candidates": 7})]
    monkeypatch.setattr(plan, "MAX_ITEMS", 599)
    assert [*by_default, search(index, 3, fusion=1).candidates] == [600, 7, 100]
    with pytest.raises(InputError, match=r"at most 599 items; this one has 600"):
        search(index, 1, candidates="exhaustive", fusion=1)
    monkeypatch.setattr(plan, "MAX_ITEMS", 600)
    assert search(index, 1, candidates="exhaustive", fusion=1).candidates == 600
